import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { renderSettingsPage, settingsPagePath } from "./settings-page.ts";

test("docs/settings.md is what `npm run generate` makes of the settings", () => {
  expect(readFileSync(settingsPagePath, "utf8")).toBe(renderSettingsPage());
});
