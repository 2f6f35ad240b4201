import { readAllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { expect, test } from "vitest";
import { followSetting, readDefaultImage } from "./default-image.ts";
import { newImage } from "./images.ts";

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

test("of its name, the oldest takes over what the setting says, and nothing else", () => {
  const made = newImage({ ...read("web=nginx:1,80"), memoryMb: 512 }, "");
  const later = { ...newImage(read("web=nginx:1"), ""), createdAt: new Date(made.createdAt.getTime() + 1) };
  const now = new Date(made.createdAt.getTime() + 2);
  const changed = followSetting([later, made], read("web=nginx:2,8080"), now);
  expect(changed).toEqual({ ...made, image: "nginx:2", tag: "2", readinessPort: 8080, updatedAt: now });
  expect(followSetting([made], read("web=nginx:1"), now)).toMatchObject({ readinessPort: undefined });
  expect(followSetting([made], read("web=nginx:1,80"), now)).toBeUndefined();
  expect(followSetting([], read("web=nginx:1,80"), now)).toBeUndefined();
});
