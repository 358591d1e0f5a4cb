// Conversations, kept in this browser's IndexedDB: one record each, with its messages.

const NAME = "trinity";
const STORE = "conversations";
let opened;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
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

/** All conversations, the one that changed last first. */
export async function all() {
  const found = await run("readonly", (store) => store.getAll());
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
