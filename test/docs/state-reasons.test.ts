import { stateReasons } from "@sandgate/facade/state-reasons";
import { failureReasons, stopReasons } from "@sandgate/sandbox/states";
import { expect, test } from "vitest";

test("every reason that a sandbox can end for is in the API's reference, with what it means and a hint, and no other is", () => {
  expect(Object.keys(stateReasons).toSorted()).toEqual([...stopReasons, ...failureReasons].toSorted());
  for (const [reason, { meaning, hint }] of Object.entries(stateReasons)) {
    expect(meaning, reason).toMatch(/^[A-Z].{10,}\.$/s);
    expect(hint, reason).toMatch(/^[A-Z].{10,}\.$/s);
  }
});
