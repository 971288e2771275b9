// Turns the dials of every explorer on the page with no kernel: it shows frames made beforehand.
// An explorer is a .labx-player holding .labx-view, .labx-note and one JSON block (see explorer.py).
(function () {
  function make(tag, set, parts) {
    var node = document.createElement(tag);
    Object.keys(set).forEach(function (key) { node.setAttribute(key, set[key]); });
    (parts || []).forEach(function (part) { node.append(part); });
    return node;
  }
  document.querySelectorAll(".labx-player").forEach(function (root) {
    var store = root.querySelector('script[type="application/json"]');
    if (!store || root.dataset.on) return;
    root.dataset.on = 1;
    var data = JSON.parse(store.textContent), at = data.start.slice(), inputs = [], timer = 0, turned = 0;
    var view = root.querySelector(".labx-view"), note = root.querySelector(".labx-note");
    var bar = make("div", {"class": "labx-dials"}), live = make("span", {"class": "labx-live", "aria-live": "polite"});

    function draw(quiet) {
      var frame = 0, point = data.dials.map(function (dial, i) {
        var text = dial.labels[at[i]];
        frame = frame * dial.labels.length + at[i];
        inputs[i].value = at[i];
        inputs[i].setAttribute("aria-valuetext", text);
        inputs[i].nextSibling.textContent = text;
        return dial.name + " = " + text;
      });
      // The box never shrinks, so that turning a dial does not move the text below it.
      view.style.minHeight = view.offsetHeight + "px";
      view.innerHTML = data.frames[frame];
      var head = view.querySelector("caption,figcaption");
      if (!quiet) live.textContent = point.join(", ") + (head ? ": " + head.textContent : "");
    }
    function stop() {
      clearInterval(timer);
      timer = 0;
      button.classList.remove("labx-on");
      button.setAttribute("aria-label", "play " + data.dials[turned].name);
    }
    function step() {
      var last = data.dials[turned].labels.length - 1;
      at[turned] = Math.min(at[turned] + 1, last);
      var end = at[turned] == last;
      draw(!end);
      if (end) stop();
    }
    var button = make("button", {type: "button", "class": "labx-play"});
    button.onclick = function () {
      if (timer) return stop();
      if (at[turned] == data.dials[turned].labels.length - 1) { at[turned] = 0; draw(true); }
      button.classList.add("labx-on");
      button.setAttribute("aria-label", "pause");
      timer = setInterval(step, 700);
    };
    data.dials.forEach(function (dial, i) {
      var input = make("input", {type: "range", min: 0, max: dial.labels.length - 1, step: 1, "aria-label": dial.name});
      input.oninput = function () { turned = i; stop(); at[i] = +input.value; draw(); };
      inputs.push(input);
      bar.append(make("label", {}, [make("span", {}, [dial.name]), input, make("output", {})]));
    });
    // A page that moves by itself is what this setting asks us not to make.
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) bar.append(button);
    stop();
    if (note) note.remove();
    root.insertBefore(bar, view);
    root.append(live);
    draw(true);
  });
})();
