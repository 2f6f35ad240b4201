import { readAllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { expect, test } from "vitest";
import { readDefaultImage } from "./default-image.ts";

const read = (text: string) => readDefaultImage(text, readAllowedHosts([]));

test("a default image has a name, a reference and perhaps a port", () => {
  expect(read("Default=sandgate/default:1.0")).toMatchObject({
    name: "Default",
    image: "sandgate/default:1.0",
    tag: "1.0",
    readinessPort: undefined,
  });
  expect(read("Web server=nginx,8080")).toMatchObject({ name: "Web server", image: "nginx", readinessPort: 8080 });
});

test.each(["", "nginx", "=nginx", "web=", "web=nginx,0", "web=nginx,65536", "web=nginx,port"])("%j is none", (text) => {
  expect(() => read(text)).toThrow(/name=reference/);
});

test("its reference is checked like any other", () => {
  expect(() => read("web=Not An Image")).toThrow(expect.objectContaining({ reason: "VALIDATION_ERROR" }));
});
