// Images of the message that is being written: chosen, pasted or dropped, with a button to remove each.

import { element } from "./element.js";

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const MOST_BYTES = 20_000_000;
const place = document.getElementById("pictures");
let urls = [];

export const all = () => [...urls];

/** Replace the images by these data URLs. */
export function set(given = []) {
  urls = [...given];
  place.hidden = urls.length === 0;
  place.replaceChildren(...urls.map((url, i) => {
    const remove = element("button", { type: "button", "aria-label": `Remove image ${i + 1}` }, "✕");
    remove.addEventListener("click", () => set(urls.filter((_, other) => other !== i)));
    return element("span", {}, shown(url, i), remove);
  }));
}

/** The element that shows an image. */
export const shown = (url, i) => element("img", { src: url, alt: `Image ${i + 1}` });

/** Whether a value of an imported file is the data URL of an image. */
export const isImage = (url) => typeof url === "string" && TYPES.some((type) => url.startsWith(`data:${type};base64,`));

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

/** Add files; an error names the file and says what is wrong. */
export async function add(files, readsImages) {
  if (!readsImages) throw new Error("This model reads only text. Choose a vision model to send images.");
  for (const file of files) {
    if (!TYPES.includes(file.type)) throw new Error(`${file.name} is not a PNG, JPEG, WebP, GIF or BMP image.`);
    if (file.size > MOST_BYTES) throw new Error(`${file.name} has more than ${MOST_BYTES / 1e6} MB. Choose a smaller image.`);
    set([...urls, await read(file)]);
  }
}

/** Call `take` with the files that are chosen, or pasted or dropped in `area`. */
export function listen(area, take) {
  const input = document.getElementById("image-file");
  document.getElementById("attach").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const given = [...input.files];
    input.value = "";  // the same file may be chosen again
    take(given);
  });
  for (const [kind, data] of [["paste", "clipboardData"], ["drop", "dataTransfer"]]) {
    area.addEventListener(kind, (event) => {
      const given = [...event[data].files];
      if (!given.length) return;  // text
      event.preventDefault();
      take(given);
    });
  }
  area.addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
}
