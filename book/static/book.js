/* The filter of the Claims page: by document, by section, by words. Without a script all is shown. */
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("claim-filter");
  if (!form) return;
  const { document: documents, section: sections, words, count } = form.elements;
  const groups = [...document.querySelectorAll("section.claims-of")].map((node) => ({
    node,
    name: node.id.replace("claims-of-", ""),
    title: node.querySelector("h1, h2, h3, h4, h5").firstChild.textContent,
    rows: [...node.querySelectorAll(".claim-row")],
  }));
  const chapters = [...document.querySelectorAll("section.claims-in")];
  const option = (select, value, label) => select.add(new Option(label, value));
  for (const name of new Set(groups.map((group) => group.name[0]))) option(documents, name, name);

  const fillSections = () => {
    const chosen = sections.value;
    sections.length = 1;
    for (const group of groups)
      if (!documents.value || group.name[0] === documents.value) option(sections, group.name, group.title);
    sections.value = [...sections.options].some((o) => o.value === chosen) ? chosen : "";
  };
  const draw = () => {
    const wanted = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { node, name, rows } of groups) {
      const here = (!documents.value || name[0] === documents.value)
        && (!sections.value || name === sections.value);
      let any = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !(here && wanted.every((word) => text.includes(word)));
        any += !row.hidden;
      }
      node.hidden = any === 0;
      shown += any;
    }
    for (const chapter of chapters)
      chapter.hidden = !chapter.querySelector("section.claims-of:not([hidden])");
    count.textContent = `${shown} shown`;
  };
  documents.addEventListener("change", () => { fillSections(); draw(); });
  sections.addEventListener("change", draw);
  words.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  fillSections();
  draw();
  form.hidden = false;
});
