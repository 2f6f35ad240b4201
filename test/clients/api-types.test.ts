import { readFile } from "node:fs/promises";
import { requireServer } from "@sandgate/test-support/require";
import { expect, test } from "vitest";
import { installNodeTools } from "../openapi-tools.ts";
import { apiTypesFile, makeApiTypes } from "./api-types.ts";
import { makePythonRecords, pythonRecordsFile } from "./python-records.ts";

test.runIf(await requireServer("openapi-tools", installNodeTools))(
  "the client's types are those of the OpenAPI document (npm run generate:client)",
  async () => {
    const [committed, made] = await Promise.all([readFile(apiTypesFile, "utf8"), makeApiTypes()]);
    // The whole text as a difference would be of no help.
    expect(made === committed).toBe(true);
  },
);

test("the Python client's records are those of the OpenAPI document (npm run generate:client)", async () => {
  const [committed, made] = await Promise.all([readFile(pythonRecordsFile, "utf8"), makePythonRecords()]);
  expect(made === committed).toBe(true);
});
