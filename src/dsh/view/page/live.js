// Following a session that is still written: ask its own server for what comes, and take it over.

import { addBodies, log, merge } from "./data.js";
import { byId } from "./text.js";

const AGAIN_MS = 1000;

function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

/** Ask until the server says goodbye, or does not answer any more. `onchange` gets the indices of
 * changed rows and how many rows there were before. */
export async function follow(onchange) {
  let failures = 0;
  while (failures < 5) {
    try {
      const answer = await fetch(`changes?revision=${log.revision}&place=${log.about.place}`, {
        cache: "no-store",
      });
      if (answer.status === 410) break;
      if (!answer.ok) throw new Error(String(answer.status));
      const change = await answer.json();
      failures = 0;
      const before = log.rows.length;
      addBodies(change.bodies);
      onchange(merge(change.index), before);
    } catch {
      failures += 1;
      await pause(AGAIN_MS);
    }
  }
  document.body.dataset.mode = "ended";
  byId("status").textContent = "no longer following";
}
