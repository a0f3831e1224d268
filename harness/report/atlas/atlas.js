// The map: a plane through the cube model × law × version, with filters, keys and links.
// All state is in `at`; the address contains it, and opening the address restores it.
(() => {
  const $ = (selector) => document.querySelector(selector);
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== false) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  };
  const VERDICTS = {
    u: ["upheld", "✓", "upheld"],
    r: ["refuted", "✗", "refuted"],
    i: ["inconclusive", "?", "inconclusive"],
    n: ["not applicable", "–", "absent"],
    b: ["not built", "∅", "unbuilt"],
    ".": ["not run", "", "unrun"],
  };
  const SUPER = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  const number = (text) => {
    const [digits, exponent] = String(text).split("e");
    if (exponent === undefined) return digits.replace("-", "−");
    const raised = [...exponent].map((sign) => SUPER[sign] ?? "").join("");
    return `${digits === "1" ? "" : `${digits.replace("-", "−")}×`}10${raised}`;
  };

  // -- the data -----------------------------------------------------------------------------

  let data, ordinals, counts, flipAt, flipLines, refused;

  const unpack = async () => {
    const bytes = Uint8Array.from(atob($("#data").textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };
  const place = (s, l, t, v) => ((s * counts.laws + l) * counts.subjects + t) * counts.versions + v;
  const line = (s, l, t) => (s * counts.laws + l) * counts.subjects + t;
  const prepare = () => {
    counts = { laws: data.laws.length, subjects: data.subjects.length, versions: data.versions.length };
    ordinals = new Int32Array(data.verdicts.length).fill(-1);
    let next = 0;
    for (let i = 0; i < data.verdicts.length; i++) {
      if (!".b".includes(data.verdicts[i])) ordinals[i] = next++;
    }
    flipAt = new Map();
    flipLines = new Map();
    for (const [s, l, t, before, after, bad, again] of data.flips) {
      flipAt.set(place(s, l, t, after), before);
      const key = line(s, l, t);
      flipLines.set(key, [...(flipLines.get(key) ?? []), [before, after, bad, again]]);
    }
    refused = new Map(data.refused.map(([t, v, why]) => [t * counts.versions + v, why]));
  };
  const lawName = (l) => data.laws[l][1] + (data.laws[l][2] ? ` [${data.laws[l][2]}]` : "");
  const lawKey = (l) => `${data.laws[l][0]} ${lawName(l)}`;
  const column = (name, i) => data.columns[name][i];
  const textOf = (i, name) => data.strings[column(name, i)];
  const unexpected = (i) => i >= 0 && textOf(i, "judged").startsWith("unexpected");
  const margin = (i, l) => {
    const text = textOf(i, "margin");
    if (!text || text === "–") return "";
    const shown = text.replace("-", "−");
    if (data.laws[l][3] === "finding") return `clears its bound by ${shown} half-widths`;
    return /\d/.test(text) ? `margin ${shown} decades` : `margin: ${shown}`;
  };

  // -- the state and the address ------------------------------------------------------------

  const start = {
    view: "map", setting: 0, law: 0, type: 0, version: 0,
    models: "", laws: "", verdict: "", kind: "law", flips: false, odd: false,
  };
  let at = { ...start };
  const views = ["map", "law", "type"];
  const indexOf = (list, wanted, otherwise) => {
    const i = list.indexOf(wanted);
    return wanted === null || i < 0 ? otherwise : i;
  };
  const read = () => {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) return false; // a link to a section
    const query = new URLSearchParams(hash);
    const view = query.get("view");
    at = {
      view: views.includes(view) ? view : start.view,
      setting: indexOf(data.settings, query.get("setting"), 0),
      law: indexOf(data.laws.map((_, l) => lawKey(l)), query.get("law"), start.law),
      type: indexOf(data.subjects.map((s) => s[1]), query.get("type"), start.type),
      version: indexOf(data.versions, query.get("version"), start.version),
      models: query.get("models") ?? "",
      laws: query.get("laws") ?? "",
      verdict: Object.hasOwn(VERDICTS, query.get("verdict") ?? "") ? query.get("verdict") : "",
      kind: ["law", "finding", "all"].includes(query.get("kind")) ? query.get("kind") : start.kind,
      flips: query.get("flips") === "1",
      odd: query.get("unexpected") === "1",
    };
    if (data.laws[at.law]?.[3] === "finding" && at.kind === "law" && query.has("law")) at.kind = "all";
    return true;
  };
  const address = () => {
    const said = new URLSearchParams({
      view: at.view, type: data.subjects[at.type][1], law: lawKey(at.law),
      version: data.versions[at.version],
    });
    if (data.settings.length > 1) said.set("setting", data.settings[at.setting]);
    for (const name of ["models", "laws", "verdict"]) if (at[name]) said.set(name, at[name]);
    if (at.kind !== start.kind) said.set("kind", at.kind);
    if (at.flips) said.set("flips", "1");
    if (at.odd) said.set("unexpected", "1");
    return `#${said}`;
  };
  const remember = () => history.replaceState(null, "", address());

  // -- which rows and columns ---------------------------------------------------------------

  // A view is a plane: its rows and columns, and the cell at their crossing.
  const planes = {
    map: { rows: "type", columns: "law", cell: (r, c) => [c, r, at.version] },
    law: { rows: "type", columns: "version", cell: (r, c) => [at.law, r, c] },
    type: { rows: "law", columns: "version", cell: (r, c) => [r, at.type, c] },
  };
  const fits = (text, wanted) =>
    wanted.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));
  const all = (axis) => {
    const length = { type: counts.subjects, law: counts.laws, version: counts.versions }[axis];
    const every = [...Array(length).keys()];
    if (axis === "type") return every.filter((t) => fits(data.subjects[t].join(" "), at.models));
    if (axis === "version") return every;
    return every.filter(
      (l) => (at.kind === "all" || data.laws[l][3] === at.kind) && fits(lawKey(l), at.laws),
    );
  };
  const wanted = (l, t, v) => {
    const i = place(at.setting, l, t, v);
    if (at.verdict && data.verdicts[i] !== at.verdict) return false;
    if (at.flips && !flipLines.has(line(at.setting, l, t))) return false;
    return !at.odd || unexpected(ordinals[i]);
  };
  const filtered = () => at.verdict || at.flips || at.odd;

  // -- the table ----------------------------------------------------------------------------

  const grid = $("#grid");
  let ways = []; // rows of elements that the arrow keys go through
  let focus = [1, 1];
  let shownRows = [], shownColumns = [];

  const describe = (l, t, v) => {
    const i = place(at.setting, l, t, v);
    const letter = data.verdicts[i];
    const parts = [VERDICTS[letter][0]];
    if (ordinals[i] >= 0 && letter !== "n") parts.push(margin(ordinals[i], l));
    if (flipAt.has(i)) parts.push(`flipped since ${data.versions[flipAt.get(i)]}`);
    if (unexpected(ordinals[i])) parts.push("unexpected");
    return parts.filter(Boolean).join(", ");
  };
  const draw = () => {
    const plane = planes[at.view];
    let rows = all(plane.rows), columns = all(plane.columns);
    let shown = 0;
    if (filtered()) {
      const kept = new Set(), used = new Set();
      for (const r of rows) {
        for (const c of columns) {
          if (!wanted(...plane.cell(r, c))) continue;
          kept.add(r);
          used.add(c);
          shown++;
        }
      }
      rows = rows.filter((r) => kept.has(r));
      if (plane.columns !== "version") columns = columns.filter((c) => used.has(c));
    } else {
      // A column without any run in this version is left out.
      const ran = (r, c) => {
        const [l, t, v] = plane.cell(r, c);
        return data.verdicts[place(at.setting, l, t, v)] !== ".";
      };
      if (plane.columns === "law") columns = columns.filter((c) => rows.some((r) => ran(r, c)));
      rows = rows.filter((r) => columns.some((c) => ran(r, c)));
      for (const r of rows) for (const c of columns) shown += ran(r, c);
    }
    [shownRows, shownColumns] = [rows, columns];
    ways = [[null]];
    grid.replaceChildren(caption(), head(columns, plane.columns), body(rows, columns, plane));
    grid.setAttribute("aria-rowcount", rows.length + 1);
    grid.setAttribute("aria-colcount", columns.length + 1);
    grid.dataset.view = at.view;
    $("#empty").hidden = rows.length > 0;
    grid.hidden = rows.length === 0;
    const what = { type: "model", law: "law", version: "version" };
    const many = (n, axis) => `${n} ${what[axis]}${n === 1 ? "" : "s"}`;
    $("#count").textContent = `${shown} ${shown === 1 ? "cell" : "cells"}: ` +
      `${many(rows.length, plane.rows)} × ${many(columns.length, plane.columns)}`;
    const mine = { type: at.type, law: at.law, version: at.version };
    focus = [
      Math.max(0, rows.indexOf(mine[plane.rows])) + 1,
      Math.max(0, columns.indexOf(mine[plane.columns])) + 1,
    ];
    mark();
    controls();
    if (rows.length && columns.length) {
      keepInSight(ways[focus[0]][focus[1]], false);
      if (!rows.includes(mine[plane.rows]) || !columns.includes(mine[plane.columns])) {
        take(plane.cell(rows[focus[0] - 1], columns[focus[1] - 1]));
      }
    }
    panel();
    remember();
  };
  const caption = () => {
    const words = {
      map: `Models × laws in transformers ${data.versions[at.version]}`,
      law: `${lawKey(at.law)}, by model and version of transformers`,
      type: `${data.subjects[at.type][0]}, by law and version of transformers`,
    };
    return make("caption", {}, words[at.view]);
  };
  const header = (axis, i) => {
    const [text, title] = {
      type: () => [data.subjects[i][0], data.subjects[i].slice(1).join(": ")],
      law: () => [data.laws[i][2] || data.laws[i][1], lawKey(i)],
      version: () => [data.versions[i], `transformers ${data.versions[i]}`],
    }[axis]();
    const button = make("button", { type: "button", tabindex: "-1", title }, make("span", {}, text));
    const goes = { type: "over all versions", law: "over all versions", version: "as a map" }[axis];
    button.setAttribute("aria-label", `${axis === "law" ? lawKey(i) : text}: show ${goes}`);
    button.addEventListener("click", () => {
      if (axis === "version") go({ view: "map", version: i });
      else go(axis === "type" ? { view: "type", type: i } : { view: "law", law: i });
    });
    return button;
  };
  const head = (columns, axis) => {
    const top = make("tr"), row = make("tr");
    const made = make("thead");
    const corner = { type: "Model", law: "Law" }[planes[at.view].rows];
    if (axis === "law") {
      top.append(make("td", { class: "corner", role: "presentation" }));
      for (let i = 0; i < columns.length; ) {
        const id = data.laws[columns[i]][0];
        let span = 1;
        while (i + span < columns.length && data.laws[columns[i + span]][0] === id) span++;
        top.append(make("th", { colspan: span, scope: "colgroup", class: "group" }, id));
        i += span;
      }
      made.append(top);
    }
    row.append(make("th", { scope: "col", class: "corner" }, corner));
    columns.forEach((c, i) => {
      const button = header(axis, c);
      ways[0].push(button);
      const first = axis === "law" && (i === 0 || data.laws[columns[i - 1]][0] !== data.laws[c][0]);
      row.append(make("th", { scope: "col", class: `${axis}${first ? " first" : ""}` }, button));
    });
    made.append(row);
    return made;
  };
  const body = (rows, columns, plane) => {
    const made = make("tbody");
    const dims = filtered();
    for (const r of rows) {
      const button = header(plane.rows, r);
      if (plane.rows === "law") {
        button.firstChild.replaceChildren(make("b", {}, data.laws[r][0]), ` ${lawName(r)}`);
      }
      const row = make("tr", {}, make("th", { scope: "row" }, button));
      const way = [button];
      columns.forEach((c, n) => {
        const [l, t, v] = plane.cell(r, c);
        const i = place(at.setting, l, t, v);
        const [, sign, kind] = VERDICTS[data.verdicts[i]];
        let classes = kind;
        if (flipAt.has(i)) classes += " flip";
        if (unexpected(ordinals[i])) classes += " odd";
        if (dims && !wanted(l, t, v)) classes += " dim";
        if (plane.columns === "law" && n && data.laws[columns[n - 1]][0] !== data.laws[c][0]) classes += " first";
        const cell = make("td", { role: "gridcell", tabindex: "-1", class: classes }, sign);
        cell.setAttribute("aria-label", describe(l, t, v));
        cell.cube = [l, t, v];
        cell.place = [ways.length, n + 1];
        row.append(cell);
        way.push(cell);
      });
      ways.push(way);
      made.append(row);
    }
    return made;
  };

  // -- one cell -----------------------------------------------------------------------------

  const take = ([l, t, v]) => ([at.law, at.type, at.version] = [l, t, v]);
  const mark = () => {
    for (const old of grid.querySelectorAll("[tabindex='0']")) old.tabIndex = -1;
    for (const old of grid.querySelectorAll("[aria-selected]")) old.removeAttribute("aria-selected");
    const element = ways[focus[0]]?.[focus[1]];
    if (!element) return;
    element.tabIndex = 0;
    if (element.cube) element.setAttribute("aria-selected", "true");
  };
  const step = (row, column, andFocus = true) => {
    const last = ways.length - 1;
    const r = Math.max(0, Math.min(last, row));
    const c = Math.max(r === 0 ? 1 : 0, Math.min(ways[r].length - 1, column));
    focus = [r, c];
    mark();
    const element = ways[r][c];
    if (!element) return;
    if (andFocus) element.focus({ preventScroll: true });
    keepInSight(element);
    if (element.cube) {
      take(element.cube);
      panel();
      remember();
      controls();
    }
  };
  const keepInSight = (element, andPage = true) => {
    const box = $(".plane");
    const cell = element.getBoundingClientRect(), frame = box.getBoundingClientRect();
    const top = grid.tHead.getBoundingClientRect().height;
    const left = grid.querySelector("th.corner").getBoundingClientRect().width;
    if (element.cube) {
      if (cell.left < frame.left + left) box.scrollLeft -= frame.left + left - cell.left + 4;
      else if (cell.right > frame.right) box.scrollLeft += cell.right - frame.right + 12;
      if (cell.top < frame.top + top) box.scrollTop -= frame.top + top - cell.top + 4;
      else if (cell.bottom > frame.bottom) box.scrollTop += cell.bottom - frame.bottom + 12;
    }
    const now = element.getBoundingClientRect();
    if (andPage && (now.top < 0 || now.bottom > innerHeight)) element.scrollIntoView({ block: "nearest" });
  };
  grid.addEventListener("keydown", (event) => {
    const [r, c] = focus;
    const page = 10, end = 1e6;
    const moves = {
      ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1],
      PageUp: [Math.max(1, r - page), c], PageDown: [r + page, c],
      Home: [event.ctrlKey ? 1 : r, 1], End: [event.ctrlKey ? end : r, end],
    };
    if (event.key in moves && !event.altKey && !event.metaKey) {
      event.preventDefault();
      step(...moves[event.key]);
    } else if (event.key === "Enter" && event.target.cube) {
      event.preventDefault();
      open(true);
      $("#panel h3").focus();
    }
  });
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest("td");
    if (!cell?.cube) return;
    step(...cell.place);
    open(true);
    unhint();
    // On a narrow screen the panel covers the lower part of the map.
    const over = $("#panel").getBoundingClientRect(), own = cell.getBoundingClientRect();
    if (getComputedStyle($("#panel")).position === "fixed" && own.bottom > over.top) {
      scrollBy(0, own.bottom - over.top + 16);
    }
  });
  // Follow the focus when it reaches a cell by other ways than these keys.
  grid.addEventListener("focusin", ({ target }) => {
    if (target.cube && ways[focus[0]]?.[focus[1]] !== target) step(...target.place, false);
  });
  const open = (yes) => $("#panel").classList.toggle("open", yes);
  $("#panel").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    open(false);
    step(...focus);
  });

  const panel = () => {
    const [l, t, v, s] = [at.law, at.type, at.version, at.setting];
    const i = place(s, l, t, v);
    const letter = data.verdicts[i], n = ordinals[i];
    const [verdict, sign, kind] = VERDICTS[letter];
    const finding = data.laws[l][3] === "finding";
    const parts = [];
    const facts = make("dl");
    const fact = (name, ...value) => facts.append(make("div", {}, make("dt", {}, name), make("dd", {}, ...value)));
    const title = make("h3", { tabindex: "-1" }, make("b", {}, data.laws[l][0]), ` ${lawName(l)}`);
    parts.push(title, make("p", { class: "on" }, data.subjects[t][0], make("small", {}, data.subjects[t][2])));
    parts.push(
      make("p", { class: `verdict ${kind}` },
        make("span", { class: "sign", "aria-hidden": "true" }, sign || "·"), ` ${verdict}`,
        make("small", {}, ` in transformers ${data.versions[v]}`)),
    );
    if (letter === "b") fact("Why", refused.get(t * counts.versions + v) ?? "");
    if (n >= 0 && letter !== "n") {
      const span = data.spans[n];
      fact("Observed", number(column("observed", n)), span ? ` ${data.strings[span[0]].replaceAll("-", "−")}` : "");
      fact(finding ? "Claimed" : "Allowed", span ? data.strings[span[1]] : number(column("bound", n)));
      fact("Margin", margin(n, l).replace(/^margin:? /, "") || "–");
      fact(finding ? "Draws" : "Inputs tried", String(column("examples", n)));
    }
    if (n >= 0) {
      if (textOf(n, "reason")) fact(letter === "n" ? "Missing" : "Reason", textOf(n, "reason"));
      fact("Expected", data.judged ? textOf(n, "judged") : "not compared with expectations");
    }
    parts.push(facts);
    if (n >= 0 && data.seen[n]) parts.push(...counterexample(data.seen[n]));
    parts.push(...over(l, t, v));
    const known = data.defects.filter(([, , laws, types]) => letter === "r" && laws.includes(l) && types.includes(t));
    if (known.length) {
      parts.push(make("h4", {}, "Explained by"));
      for (const [slug, name, , , versions] of known) {
        const here = versions.includes(data.versions[v]);
        parts.push(make("p", {}, make("a", { href: `#defect-${slug}` }, name),
          here ? "" : make("small", {}, " (known in other versions; not checked in this one)")));
      }
    }
    if (n >= 0) {
      const [date, versions, profile, seed, suite] = data.runs[column("run", n)];
      const weights = data.digests[column("digest", n)];
      parts.push(make("p", { class: "run" },
        `Run of ${date}: Assay ${suite}, ${versions}, ${data.settings[s]}, profile ${profile}, seed ${seed}, weights ${weights}.`));
    }
    parts.push(make("p", { class: "links" }, make("a", { href: address() }, "Link to this cell")));
    const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "×");
    close.addEventListener("click", () => {
      open(false);
      step(...focus);
    });
    $("#panel").replaceChildren(close, ...parts);
  };
  const counterexample = ([observed, allowed, where, replay, inputs]) => {
    const parts = [make("h4", {}, "Counterexample")];
    const list = make("dl", { class: "inputs" });
    for (const [label, text] of inputs) {
      list.append(make("div", {}, make("dt", {}, label), make("dd", {}, text)));
    }
    parts.push(list);
    parts.push(make("p", {}, `${number(observed)} observed, ${number(allowed)} allowed${where ? `, at ${where}` : ""}`));
    if (replay) parts.push(make("pre", { tabindex: "0", "aria-label": "Command that replays it" }, replay));
    return parts;
  };
  const over = (l, t, v) => {
    if (counts.versions < 2) return [];
    const strip = make("ul", { class: "trail" });
    data.versions.forEach((name, k) => {
      const i = place(at.setting, l, t, k);
      const [verdict, sign, kind] = VERDICTS[data.verdicts[i]];
      const button = make("button", {
        type: "button", class: `${kind}${flipAt.has(i) ? " flip" : ""}`,
        "aria-label": `${name}: ${verdict}`, "aria-current": k === v ? "true" : null,
      }, make("span", {}, sign || "·"), make("small", {}, name));
      button.addEventListener("click", () => {
        go({ version: k });
        $("#panel .trail [aria-current]")?.focus();
      });
      strip.append(make("li", {}, button));
    });
    const parts = [make("h4", {}, "Over versions"), strip];
    for (const [before, after, bad, again] of flipLines.get(line(at.setting, l, t)) ?? []) {
      const [old, fresh] = bad ? ["good", "bad"] : ["bad", "good"];
      parts.push(make("p", { class: "turn" },
        `Flips: last ${old} ${data.versions[before]}, first ${fresh} ${data.versions[after]}` +
        `${again ? "; seen again with other examples" : ""}.`));
    }
    return parts;
  };

  // -- a hint at the pointer ----------------------------------------------------------------

  const tip = $("#tip");
  const hint = (cell) => {
    const [l, t, v] = cell.cube;
    tip.replaceChildren(
      make("b", {}, describe(l, t, v)),
      make("span", {}, `${data.subjects[t][0]} · ${lawKey(l)} · ${data.versions[v]}`),
    );
    tip.hidden = false;
    const frame = cell.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.min(innerWidth - own.width - 8, Math.max(8, frame.left + frame.width / 2 - own.width / 2));
    const above = frame.top - own.height - 6;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 0 ? above : frame.bottom + 6}px`;
  };
  const unhint = () => (tip.hidden = true);
  for (const [enter, leave] of [["mouseover", "mouseout"], ["focusin", "focusout"]]) {
    grid.addEventListener(enter, (event) => {
      if (event.target.cube) hint(event.target);
    });
    grid.addEventListener(leave, unhint);
  }
  $(".plane").addEventListener("scroll", unhint, { passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") unhint();
  });

  // -- controls -----------------------------------------------------------------------------

  const go = (change) => {
    Object.assign(at, change);
    unhint();
    draw();
  };
  const options = (select, names) =>
    select.replaceChildren(...names.map((name, i) => make("option", { value: i }, name)));
  const setUp = () => {
    options($("#version"), data.versions);
    options($("#law"), data.laws.map((_, l) => lawKey(l)));
    options($("#type"), data.subjects.map((s) => s[0]));
    options($("#setting"), data.settings);
    $("#setting").closest("label").hidden = data.settings.length < 2;
    $("#odd").closest("label").hidden = !data.judged;
    $("#flips").closest("label").hidden = counts.versions < 2;
    for (const name of ["version", "law", "type", "setting"]) {
      $(`#${name}`).addEventListener("change", (event) => go({ [name]: Number(event.target.value) }));
    }
    $("#kind").addEventListener("change", (event) => go({ kind: event.target.value }));
    for (const name of ["flips", "odd"]) {
      $(`#${name}`).addEventListener("change", (event) => go({ [name]: event.target.checked }));
    }
    let waiting;
    for (const name of ["models", "laws"]) {
      $(`#${name}`).addEventListener("input", (event) => {
        clearTimeout(waiting);
        waiting = setTimeout(() => go({ [name]: event.target.value.trim() }), 120);
      });
    }
    for (const button of document.querySelectorAll("[data-verdict]")) {
      button.addEventListener("click", () => go({ verdict: button.dataset.verdict }));
    }
    for (const button of document.querySelectorAll("[data-view]")) {
      button.addEventListener("click", () => go({ view: button.dataset.view }));
    }
    for (const [id, by] of [["#older", -1], ["#newer", 1]]) {
      $(id).addEventListener("click", () => {
        go({ version: Math.max(0, Math.min(counts.versions - 1, at.version + by)) });
      });
    }
    $("#reset").addEventListener("click", () =>
      go({ models: "", laws: "", verdict: "", flips: false, odd: false, kind: start.kind }));
    $(".controls").addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", () => {
      if (!location.hash || !read()) return;
      draw();
      $("#map").scrollIntoView();
    });
  };
  const controls = () => {
    for (const name of ["version", "law", "type", "setting"]) $(`#${name}`).value = at[name];
    $("#kind").value = at.kind;
    for (const name of ["flips", "odd"]) $(`#${name}`).checked = at[name];
    for (const name of ["models", "laws"]) {
      if (document.activeElement !== $(`#${name}`)) $(`#${name}`).value = at[name];
    }
    for (const [name, key] of [["verdict", "verdict"], ["view", "view"]]) {
      for (const button of document.querySelectorAll(`button[data-${name}]`)) {
        button.setAttribute("aria-pressed", String(button.dataset[name] === at[key]));
      }
    }
    $("#older").disabled = at.version === 0;
    $("#newer").disabled = at.version === counts.versions - 1;
    for (const element of document.querySelectorAll("[data-in]")) {
      element.hidden = !element.dataset.in.split(" ").includes(at.view);
    }
  };

  const begin = async () => {
    if (!("DecompressionStream" in window)) throw new Error("this browser is too old to unpack it");
    data = await unpack();
    prepare();
    start.version = counts.versions - 1;
    const laws = data.laws.findIndex((law) => law[3] === "law");
    start.law = Math.max(0, laws);
    if (laws < 0) start.kind = "all";
    for (let i = 0; i < data.verdicts.length && laws >= 0; i++) {
      // Start at the first broken cell of the newest version.
      if (data.verdicts[i] !== "r" || i % counts.versions !== start.version) continue;
      const t = Math.floor(i / counts.versions) % counts.subjects;
      const l = Math.floor(i / counts.versions / counts.subjects) % counts.laws;
      if (i >= place(1, 0, 0, 0) || data.laws[l][3] !== "law") continue;
      [start.type, start.law] = [t, l];
      break;
    }
    at = { ...start };
    read();
    setUp();
    $(".filters").open = matchMedia("(min-width: 70.01rem)").matches || Boolean(filtered() || at.models || at.laws);
    $("#map .tool").hidden = false;
    const named = location.hash.includes("=");
    const section = location.hash && !named ? location.hash : "";
    draw();
    if (section) history.replaceState(null, "", section);
    else if (named) $("#map").scrollIntoView();
    document.documentElement.dataset.ready = "yes";
  };
  begin().catch((error) => {
    $("#trouble").hidden = false;
    $("#trouble").textContent = `The map cannot be shown: ${error.message}.`;
    document.documentElement.dataset.ready = "no";
  });
})();
