import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, expect, expectTypeOf, test } from "vitest";
import {
  choice,
  defineSettings,
  flag,
  integer,
  list,
  readSettings,
  SettingsError,
  secret,
  text,
  unknownSettings,
  webAddress,
} from "./settings.ts";

const { path: folder, remove: removeFolder } = await createTempFolder();
afterAll(removeFolder);

const definitions = defineSettings({
  port: integer("PORT", { default: 8080, min: 0, max: 65535, doc: "Where it listens." }),
  name: text("NAME", { doc: "What it is called." }),
  url: text("URL", { optional: true, doc: "Where it is." }),
  open: flag("OPEN", { default: false, doc: "Whether anyone may." }),
  allow: list("ALLOW", { default: [], doc: "Who may." }),
  level: choice("LEVEL", ["info", "debug"], { default: "info", doc: "How much it says." }),
  password: secret("PASSWORD", { optional: true, doc: "The word." }),
});

test("values are typed, trimmed and defaulted", () => {
  const settings = readSettings(definitions, { NAME: " it ", OPEN: "on", ALLOW: "a, b,,c", URL: "" });
  expect(settings).toEqual({
    port: 8080,
    name: "it",
    url: undefined,
    open: true,
    allow: ["a", "b", "c"],
    level: "info",
    password: undefined,
  });
  expectTypeOf(settings.port).toEqualTypeOf<number>();
  expectTypeOf(settings.url).toEqualTypeOf<string | undefined>();
  expectTypeOf(settings.level).toEqualTypeOf<"info" | "debug">();
});

test("one line lists everything that is wrong", () => {
  const read = () => readSettings(definitions, { PORT: "70000", OPEN: "maybe", LEVEL: "loud" });
  expect(read).toThrow(SettingsError);
  expect(read).toThrow(
    'Settings: PORT must be a whole number from 0 to 65535, not "70000"; NAME is missing (text); ' +
      'OPEN must be true or false, not "maybe"; LEVEL must be one of info, debug, not "loud"',
  );
});

test.each(["1.5", "1e3", "0x10", "-1", "NaN", "99999999999999999999"])("PORT=%s is refused", (PORT) => {
  expect(() => readSettings(definitions, { NAME: "it", PORT })).toThrow(/^Settings: PORT must be/);
});

test("a web address is read as URLs are written, without slashes at its end", () => {
  const read = (URL: string) => readSettings({ url: webAddress("URL", { doc: "Where it is." }) }, { URL }).url;
  expect(read("https://Example.com:443")).toBe("https://example.com");
  expect(read("http://127.0.0.1:8080/a//")).toBe("http://127.0.0.1:8080/a");
  for (const bad of ["ftp://x", "example.com", "https://"]) {
    expect(() => read(bad)).toThrow(`URL must be an http or https address, not "${bad}"`);
  }
});

test("a secret may stand in a file", () => {
  const file = join(folder, "password");
  writeFileSync(file, "open sesame \n");
  expect(readSettings(definitions, { NAME: "it", PASSWORD_FILE: file }).password).toBe("open sesame ");
  const read = (env: NodeJS.ProcessEnv) => () => readSettings(definitions, { NAME: "it", ...env });
  expect(read({ PASSWORD_FILE: `${file}.not` })).toThrow("PASSWORD_FILE names a file that can't be read");
  expect(read({ PASSWORD_FILE: file, PASSWORD: "other" })).toThrow("PASSWORD and PASSWORD_FILE are both set");
});

test("a text may have to match a rule, a secret from a file too, and is not shown", () => {
  const address = { accepts: (url: string) => url.startsWith("nats:"), expects: "nats://…", doc: "Where." };
  const addresses = defineSettings({
    bus: secret("BUS", address),
    other: text("OTHER", { ...address, optional: true }),
  });
  const file = join(folder, "bus");
  writeFileSync(file, "kafka://user:word@host\n");
  const read = (env: NodeJS.ProcessEnv) => () => readSettings(addresses, env);
  expect(read({ BUS_FILE: file, OTHER: "there" })).toThrow(
    /^Settings: BUS must be nats:\/\/…; OTHER must be nats:\/\/…, not "there"$/,
  );
  expect(read({})).toThrow("Settings: BUS is missing (nats://…)");
  expect(read({ BUS: "nats://host" })()).toEqual({ bus: "nats://host", other: undefined });
});

test("variables that look like settings and are none are found, but for those of tests", () => {
  const known = { SANDGATE_LOG_LEVEL: "info", SANDGATE_DATABASE: "x", SANDGATE_DATABASE_FILE: "x", PATH: "/bin" };
  expect(unknownSettings({ ...known, SANDGATE_TEST_MONGODB_URL: "x", SANDGATE_REQUIRE: "mongo" })).toEqual([]);
  expect(unknownSettings({ ...known, SANDGATE_TYPO: "1", SANDGATE_LOG_LEVEL_FILE: "x" })).toEqual([
    "SANDGATE_TYPO",
    "SANDGATE_LOG_LEVEL_FILE",
  ]);
});

test("definitions are data", () => {
  expect(definitions.port).toMatchObject({ name: "PORT", kind: "integer", default: "8080", required: false });
  expect(definitions.name).toMatchObject({ required: true, default: undefined, doc: "What it is called." });
});
