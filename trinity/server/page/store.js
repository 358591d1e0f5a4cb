// Conversations, kept in this browser's IndexedDB: one record each, with its messages.

const NAME = "trinity";
const STORE = "conversations";
const OPENING_MS = 10_000;  // beyond, the page goes on without
let opened;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => {
      // It is opened anew after the browser's data were cleared.
      const close = () => {
        request.result.close();
        opened = undefined;
      };
      request.result.onversionchange = request.result.onclose = close;
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
    setTimeout(() => reject(new Error("its database cannot be opened")), OPENING_MS);
  });
  opened.catch(() => (opened = undefined));
  return opened;
}

async function run(mode, act) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, mode);
    const request = act(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

const unkept = new Map();  // settings that last until the page is closed

/** A setting of this browser; null where there is none. */
export function remembered(name) {
  try {
    return unkept.get(name) ?? localStorage.getItem(`trinity.${name}`);
  } catch {
    return null;
  }
}

/** Keep a setting, where the browser does; full or forbidden storage stops nothing. */
export function remember(name, value) {
  try {
    localStorage.setItem(`trinity.${name}`, value);
    unkept.delete(name);
  } catch {
    unkept.set(name, value);
  }
}

/** All conversations, the one that changed last first. A response that was running when the page was left is marked. */
export async function all() {
  const found = await run("readonly", (store) => store.getAll());
  for (const { messages } of found) {
    const last = messages.at(-1);
    if (last?.unfinished) last.note = "interrupted";
  }
  return found.sort((a, b) => b.changed - a.changed);
}

export const put = (conversation) => run("readwrite", (store) => store.put(conversation));
export const remove = (id) => run("readwrite", (store) => store.delete(id));

export function fresh() {
  const now = Date.now();
  return {
    id: Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("-"),
    title: "New chat", created: now, changed: now, system: "", messages: [],
  };
}
