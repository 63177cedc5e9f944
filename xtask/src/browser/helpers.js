// Functions that `cargo xtask browser` evaluates in the API reference. It calls each of them until it returns true.
window.reference = (() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const operations = () => all("#reference .opblock");
  const path = (block) => block.querySelector(".opblock-summary-path")?.dataset.path;
  const get = (wantedPath) =>
    operations().find((block) => block.classList.contains("opblock-get") && path(block) === wantedPath);
  const click = (element) => {
    element?.click();
    return Boolean(element);
  };
  const parts = () => all(".dialog-ux .auth-container");
  const part = (scheme) => parts().find((element) => element.querySelector("h4 code")?.innerText === scheme);
  const button = (root, text) => all("button", root ?? document.createElement("div")).find((element) => element.innerText === text);

  return {
    operations,
    opened: (wantedPath) => {
      const block = get(wantedPath);
      if (block?.classList.contains("is-open")) return true;
      click(block?.querySelector(".opblock-summary-control"));
      return false;
    },
    tried: (wantedPath) => click(get(wantedPath)?.querySelector(".try-out__btn")),
    executed: (wantedPath) => {
      get(wantedPath)?.scrollIntoView();
      return click(get(wantedPath)?.querySelector(".execute"));
    },
    status: (wantedPath) => {
      const shown = get(wantedPath)?.querySelector(".live-responses-table .response .response-col_status");
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
      // The page reacts to input events, not to assignments of `value`.
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
