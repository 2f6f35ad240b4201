import { expect, test } from "vitest";
import { networksOf } from "./networks.ts";

const namesOf = (address: string) => networksOf(address).map(({ name }) => name);

test("an IPv4 address counts for itself and its /24", () => {
  expect(networksOf("192.0.2.1")).toEqual([
    { name: "192.0.2.1", share: 1 },
    { name: "192.0.2.0/24", share: 8 },
  ]);
  expect(namesOf("::ffff:192.0.2.1")).toEqual(namesOf("192.0.2.1"));
  expect(namesOf("192.0.2.1:49152")).toEqual(namesOf("192.0.2.1"));
});

test("an IPv6 address counts for its /64, /56 and /48, each of which may do more", () => {
  expect(networksOf("2001:db8:1:2fe:3:4:5:6")).toEqual([
    { name: "2001:db8:1:2fe::/64", share: 1 },
    { name: "2001:db8:1:200::/56", share: 4 },
    { name: "2001:db8:1::/48", share: 16 },
  ]);
  expect(namesOf("2001:db8:1:2fe::1")).toEqual(namesOf("2001:db8:1:2fe:3:4:5:6"));
  expect(namesOf("[2001:db8:1:2fe::1]:49152")).toEqual(namesOf("2001:db8:1:2fe::1"));
  expect(namesOf("2001:db8:1:2ff::1")).toEqual(["2001:db8:1:2ff::/64", "2001:db8:1:200::/56", "2001:db8:1::/48"]);
});

test("what is no address is all one network", () => {
  expect(networksOf("made up")).toEqual([{ name: "unknown", share: 1 }]);
  expect(networksOf("")).toEqual(networksOf("made up"));
});
