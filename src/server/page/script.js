"use strict";
// Keeps the page as its daemon is: listens to events, and puts what the server renders in the place of what is shown.
(() => {
  const KEY = "cutover-token";
  const main = document.getElementById("main");
  const link = document.getElementById("link");
  const said = document.getElementById("said");
  const forget = document.getElementById("forget");
  // What a part looked like when it came; the page itself changes some of it.
  const came = new Map();
  let token = kept();
  let isListening = false;
  let isLoading = false;
  let isStale = false;
  let timer = 0;

  document.documentElement.classList.add("scripted");

  // A tab may forbid its storage: then the token lives as long as the page.
  function kept() {
    try { return sessionStorage.getItem(KEY) || ""; } catch { return ""; }
  }

  function keep(value) {
    token = value;
    forget.hidden = !token;
    try {
      if (token) sessionStorage.setItem(KEY, token); else sessionStorage.removeItem(KEY);
    } catch { /* it lives as long as the page */ }
  }

  function call(path, options = {}) {
    const headers = new Headers(options.headers);
    if (token) headers.set("Authorization", "Bearer " + token);
    return fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  }

  function say(text) {
    said.textContent = text;
  }

  async function problem(response) {
    try { return (await response.json()).message; } catch { return "the daemon answered " + response.status; }
  }

  // Shows what the server renders. Whether it may be seen.
  async function load() {
    const response = await call("/page/connectors");
    if (response.status === 401) {
      if (token) say("The daemon does not know this token.");
      keep("");
      if (!document.getElementById("unlock")) location.reload();
      return false;
    }
    if (!response.ok) throw new Error(await problem(response));
    show(new DOMParser().parseFromString(await response.text(), "text/html").getElementById("content"));
    return true;
  }

  function parts(root) {
    return new Map([...root.querySelectorAll("[data-part]")].map((part) => [part.id, part]));
  }

  function show(fresh) {
    const content = document.getElementById("content");
    const before = content ? parts(content) : new Map();
    const after = parts(fresh);
    const isSame = content && before.size === after.size && [...after.keys()].every((id) => before.has(id));
    const focused = document.activeElement && document.activeElement.id;
    if (isSame) {
      content.dataset.after = fresh.dataset.after;
      content.toggleAttribute("data-moving", fresh.hasAttribute("data-moving"));
    }
    for (const [id, part] of after) {
      const html = part.outerHTML;
      if (isSame && came.get(id) !== html) before.get(id).replaceWith(part);
      came.set(id, html);
    }
    if (!isSame) main.replaceChildren(fresh);
    const lost = focused && document.getElementById(focused);
    if (lost && document.activeElement !== lost) lost.focus({ preventScroll: true });
    ages();
  }

  // Refreshes soon, and again while anything moves without events.
  function refresh(wait) {
    isStale = true;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (isLoading) return;
      isLoading = true;
      isStale = false;
      try { await load(); } catch (error) { link.textContent = "not live: " + error.message; }
      isLoading = false;
      const content = document.getElementById("content");
      if (isStale) refresh(250);
      else if (content && content.hasAttribute("data-moving")) refresh(document.hidden ? 30000 : 2000);
    }, wait);
  }

  async function listen() {
    if (isListening) return;
    isListening = true;
    for (let wait = 1000; ; wait = Math.min(wait * 2, 15000)) {
      try {
        const content = document.getElementById("content");
        const response = await call("/v1/events?after=" + (content ? content.dataset.after : 0));
        if (response.status === 401) break;
        if (!response.ok) throw new Error(await problem(response));
        link.textContent = "live";
        link.className = "live needs-script";
        wait = 1000;
        refresh(0);
        await follow(response.body.getReader());
        throw new Error("the daemon ended the connection");
      } catch (error) {
        link.textContent = "not live: " + error.message;
        link.className = "needs-script";
      }
      await new Promise((done) => setTimeout(done, wait));
    }
    isListening = false;
  }

  async function follow(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const frames = rest.split("\n\n");
      rest = frames.pop();
      for (const frame of frames) take(frame);
    }
  }

  function take(frame) {
    const data = frame.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (!data) return;
    refresh(150);
    const event = JSON.parse(data);
    if (!event.event || ["appended", "acknowledged"].includes(event.event)) return;
    const about = [event.pipeline, event.view, event.connector].filter(Boolean).join("/");
    const what = event.data.to || event.event;
    say([about, String(what).replaceAll("_", " ")].filter(Boolean).join(": "));
  }

  // Times as ages, which is what one wants to know.
  function ages() {
    for (const time of document.querySelectorAll("time[data-millis]")) {
      const at = Number(time.dataset.millis);
      time.title = new Date(at).toLocaleString();
      const since = time.closest(".since");
      if (since) since.firstChild.textContent = " for ";
      time.textContent = age(Math.max(0, Math.round((Date.now() - at) / 1000))) + (since ? "" : " ago");
    }
  }

  function age(seconds) {
    if (seconds < 60) return seconds + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min";
    if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
    return Math.floor(seconds / 86400) + " days";
  }

  async function act(element, options) {
    const article = element.closest("article");
    const answer = article.querySelector(".answer");
    const what = element.dataset.call;
    answer.textContent = "…";
    try {
      const response = await call(article.dataset.base + "/" + what, { method: "POST", ...options });
      answer.textContent = response.ok
        ? what === "reset" ? "The reset " + (await response.json()).id + " is accepted." : "Done."
        : "Refused: " + (await problem(response));
      refresh(0);
      return response.ok;
    } catch (error) {
      answer.textContent = "No answer: " + error.message;
      return false;
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-call]");
    if (button) act(button, {});
  });

  // A reset needs the connector's name.
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-call]");
    if (form) form.querySelector("button").disabled = !isConfirmed(form);
  });

  function isConfirmed(form) {
    return form.elements.confirm.value === form.closest("article").dataset.name;
  }

  document.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    if (form.id === "unlock") {
      keep(form.elements.token.value.trim());
      await begin();
      return;
    }
    if (!isConfirmed(form)) return;
    const body = { reason: form.elements.reason.value };
    if (form.elements.override.checked) body.override_breaker = true;
    const key = [...crypto.getRandomValues(new Uint32Array(4))].map((n) => n.toString(16)).join("-");
    const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
    if (await act(form, { headers, body: JSON.stringify(body) })) {
      form.reset();
      form.querySelector("button").disabled = true;
      form.closest("details").open = false;
    }
  });

  forget.addEventListener("click", () => {
    keep("");
    location.reload();
  });

  async function begin() {
    try {
      if (!document.getElementById("content") && !(token && await load())) {
        link.textContent = "waits for a token";
        return;
      }
      forget.hidden = !token;
      listen();
    } catch (error) {
      link.textContent = "not live: " + error.message;
    }
  }

  const content = document.getElementById("content");
  if (content) for (const [id, part] of parts(content)) came.set(id, part.outerHTML);
  ages();
  setInterval(ages, 1000);
  begin();
})();
