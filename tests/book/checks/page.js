// What the browser tests ask of a page; loaded into every page before its own scripts.
window.bookChecks = (function () {
  const all = (query, root) => [...(root || document).querySelectorAll(query)];
  const sliders = name => all(`#${name} input[type=range]`);

  function unrendered() {
    return all(".math").filter(n => !n.querySelector("mjx-container"))
      .map(n => n.textContent.slice(0, 60));
  }

  function refused() {
    return all("mjx-merror").map(n => n.title || n.textContent);
  }

  // What sticks out of the window, or null where the page does not scroll sideways.
  function wide() {
    const room = document.documentElement.clientWidth;
    const need = document.documentElement.scrollWidth;
    if (need <= room) return null;
    const out = all("body *").filter(n => n.getBoundingClientRect().right > room + 1);
    const last = out[out.length - 1];
    return `${need} px for ${room}: ` + (last ? last.tagName + "." + last.className : "?");
  }

  function openFolded() {
    all("details").forEach(n => { n.open = true; });
    all(".toggle-hidden").forEach(n => n.classList.remove("toggle-hidden"));
  }

  // Whether the frame that shows is this one, and what each slider says it stands at.
  function frame(name, html) {
    const root = document.getElementById(name), box = document.createElement("div");
    box.innerHTML = html;
    const told = sliders(name).map(n => n.getAttribute("aria-valuetext"));
    return [root.querySelector(".labx-view").innerHTML === box.innerHTML, told];
  }

  function values(name) {
    return sliders(name).map(n => n.value).join();
  }

  function focused(name) {
    return sliders(name).indexOf(document.activeElement);
  }

  // Contrast of a text with what lies behind it (WCAG 2.2), for texts of tables and dials.
  function faint(least) {
    const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgba = text => {
      paint.clearRect(0, 0, 1, 1);
      paint.fillStyle = text;
      paint.fillRect(0, 0, 1, 1);
      const d = paint.getImageData(0, 0, 1, 1).data;
      return [d[0], d[1], d[2], d[3] / 255];
    };
    const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3]));
    const behind = node => {
      const layers = [];
      for (let n = node; n; n = n.parentElement) {
        layers.push(rgba(getComputedStyle(n).backgroundColor));
      }
      return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
    };
    const linear = v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = c => {
      const [r, g, b] = c.map(v => linear(v / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const faults = [];
    for (const node of all(".labx td, .labx th, .labx label, .labx caption")) {
      if (!node.textContent.trim() || !node.offsetParent) continue;
      const back = behind(node), front = over(rgba(getComputedStyle(node).color), back);
      const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < least) faults.push([node.textContent.trim().slice(0, 30), ratio]);
    }
    return faults.slice(0, 5);
  }

  return {unrendered, refused, wide, openFolded, frame, values, focused, faint};
})();
