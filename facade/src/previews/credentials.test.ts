import { expect, test } from "vitest";
import { changePreviewAnswer, limitSetCookie, takeCookie, takeLink } from "./credentials.ts";

test.each([
  [undefined, undefined, undefined],
  ["a=1; b=2", "a=1; b=2", undefined],
  ["__Host-sandgate=x", undefined, "x"],
  ["a=1; __Host-sandgate=x; b=2", "a=1; b=2", "x"],
  ["__Host-sandgate=x; a=1;__Host-sandgate=y", "a=1", "x"],
  ["x__Host-sandgate=x; a==", "x__Host-sandgate=x; a==", undefined],
])("of the cookies %j the server gets %j, and ours is %j", (header, rest, value) => {
  expect(takeCookie(header)).toEqual({ rest, value });
});

test.each([
  ["/", "/", undefined],
  ["/a?b=1&c", "/a?b=1&c", undefined],
  ["/a?sandgate_link=x", "/a", "x"],
  ["/a?b=%20+&sandgate_link=x%2D&c=&d", "/a?b=%20+&c=&d", "x-"],
  ["/a?sandgate%5Flink=x&sandgate_link=y", "/a", "x"],
  ["/a?sandgate_link", "/a", ""],
  ["/a?my_sandgate_link=x&%=%&b?sandgate_link=1", "/a?my_sandgate_link=x&%=%&b?sandgate_link=1", undefined],
])("of the URL %j the server gets %j, and the link is %j", (given, url, value) => {
  expect(takeLink(given)).toEqual({ url, value });
});

test.each([
  ["a=1", "a=1"],
  ["a=1; Path=/; domain=example.com; Secure", "a=1; Path=/; Secure"],
  ["a=Domain=x; DOMAIN =.example.com;HttpOnly", "a=Domain=x;HttpOnly"],
  ["__Host-sandgate=forged; Path=/; Secure", undefined],
  [" __Host-sandgate =forged", undefined],
])("the cookie %j of a server is set as %j", (header, limited) => {
  expect(limitSetCookie(header)).toBe(limited);
});

test("no answer clears what belongs to other hosts", () => {
  expect(changePreviewAnswer("clear-site-data", '"cookies"')).toBeUndefined();
  expect(changePreviewAnswer("x-other", "kept")).toBe("kept");
});
