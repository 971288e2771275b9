// The filter of the Claims page: hides rows of other documents and sections.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector(".labbook-filter");
  if (!form) return;
  const rows = [...document.querySelectorAll(".labbook-claims tbody tr")];
  const { document: part, section } = form.elements;
  const draw = () => {
    let shown = 0;
    for (const row of rows) {
      const fits = (!part.value || row.dataset.document === part.value)
        && (!section.value || row.dataset.section === section.value);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} claims`;
  };
  part.addEventListener("change", () => {
    for (const option of section.options)
      option.hidden = option.value !== "" && part.value !== "" && !option.value.startsWith(part.value);
    if (part.value && !section.value.startsWith(part.value)) section.value = "";
    draw();
  });
  section.addEventListener("change", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
});
