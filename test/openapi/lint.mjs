// Prints what Redocly (recommended) and Spectral (spectral:oas) find in the OpenAPI document in the first argument, as JSON.
import { readFileSync } from "node:fs";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import spectralCore from "@stoplight/spectral-core";
import { oas } from "@stoplight/spectral-rulesets";

const [file = ""] = process.argv.slice(2);
const source = readFileSync(file, "utf8");
const redocly = await lintFromString({
  source,
  absoluteRef: file,
  config: await createConfig({ extends: ["recommended"] }),
});
const spectral = new spectralCore.Spectral();
spectral.setRuleset(oas);
const found = [
  ...redocly.map(({ ruleId, location: [at] }) => `${ruleId} ${at?.pointer}`),
  ...(await spectral.run(source)).map(({ code, path }) => `${code} ${path.join("/")}`),
];
process.stdout.write(JSON.stringify(found));
