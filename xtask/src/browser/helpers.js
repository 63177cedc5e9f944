// What `cargo xtask browser` asks the page of the reference. Every function is called until it answers true.
window.reference = (() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const operations = () => all("#reference .opblock");
  const path = (block) => block.querySelector(".opblock-summary-path")?.dataset.path;
  const get = (wanted) =>
    operations().find((block) => block.classList.contains("opblock-get") && path(block) === wanted);
  const click = (element) => {
    element?.click();
    return Boolean(element);
  };
  const parts = () => all(".dialog-ux .auth-container");
  const part = (scheme) => parts().find((one) => one.querySelector("h4 code")?.innerText === scheme);
  const button = (root, text) => all("button", root ?? document.createElement("div")).find((one) => one.innerText === text);

  return {
    operations,
    opened: (wanted) => {
      const block = get(wanted);
      if (block?.classList.contains("is-open")) return true;
      click(block?.querySelector(".opblock-summary-control"));
      return false;
    },
    tried: (wanted) => click(get(wanted)?.querySelector(".try-out__btn")),
    executed: (wanted) => {
      get(wanted)?.scrollIntoView();
      return click(get(wanted)?.querySelector(".execute"));
    },
    status: (wanted) => {
      const shown = get(wanted)?.querySelector(".live-responses-table .response .response-col_status");
      return shown ? shown.innerText.trim() : "";
    },
    dialogue: () => {
      if (parts().length > 0) return true;
      click(document.querySelector(".auth-wrapper .authorize"));
      return false;
    },
    pasted: (scheme, secret) => {
      const input = part(scheme)?.querySelector("input");
      if (!input) return false;
      // The page listens to what a person types, not to assignments.
      Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(input, secret);
      input.dispatchEvent(new Event("input", { bubbles: true }));
      input.dispatchEvent(new Event("change", { bubbles: true }));
      return click(button(part(scheme), "Authorize"));
    },
    holds: (scheme) => Boolean(button(part(scheme), "Logout")),
    left: (scheme) => click(button(part(scheme), "Logout")),
    closed: () => {
      if (parts().length === 0) return true;
      click(document.querySelector(".dialog-ux .close-modal"));
      return false;
    },
  };
})();
