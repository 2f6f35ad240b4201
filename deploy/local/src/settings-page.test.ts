import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { renderSettingNames, renderSettingsPage, settingNamesPath, settingsPagePath } from "./settings-page.ts";

test("docs/settings.md and the list of names are what `npm run generate` makes of the settings", () => {
  expect(readFileSync(settingsPagePath, "utf8")).toBe(renderSettingsPage());
  expect(readFileSync(settingNamesPath, "utf8")).toBe(renderSettingNames());
});
