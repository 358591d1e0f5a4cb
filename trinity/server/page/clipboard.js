// Copying. A page that comes by plain HTTP from another machine, as to a phone, has no
// navigator.clipboard; there the browser copies what is selected.

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const before = document.activeElement;
  const place = document.createElement("textarea");
  place.value = text;
  place.className = "hidden";
  place.setAttribute("aria-hidden", "true");
  document.body.append(place);
  place.select();
  const done = document.execCommand("copy");
  place.remove();
  before?.focus();
  if (!done) throw new Error("The browser could not copy the text.");
}
