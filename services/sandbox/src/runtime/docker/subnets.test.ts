import { expect, test } from "vitest";
import { formatNetwork, overlaps } from "../isolation/ipv4-network.ts";
import { parseRoutes } from "./routes.ts";
import { capacityOf, parseSubnetRange, parseSubnetRanges } from "./subnets.ts";

test("cuts ranges into subnets of 256 addresses, and takes smaller ones as they are", () => {
  const subnets = parseSubnetRanges(["198.18.0.0/15", "10.9.8.16/28"]);
  expect(subnets).toHaveLength(513);
  expect([subnets[0], subnets[1], subnets.at(-1)].map((subnet) => subnet && formatNetwork(subnet))).toEqual([
    "10.9.8.16/28",
    "198.18.0.0/24",
    "198.19.255.0/24",
  ]);
  expect(subnets.slice(0, 2).map(capacityOf)).toEqual([13, 253]);
});

test.each(["", "198.18.0.0", "198.18.0.0/", "198.18.0.0/31", "10.0.0.0/7", "198.18.0.1/24", "db/24", "fd00::/64"])(
  "refuses %j and says so",
  (text) => {
    expect(() => parseSubnetRange(text)).toThrow(`"${text}"`);
  },
);

test("refuses what sandboxes could reach from other networks, and what is named twice", () => {
  expect(() => parseSubnetRange("203.0.113.0/24")).toThrow("not in a private range");
  expect(() => parseSubnetRanges(["10.0.0.0/16", "10.0.3.0/24"])).toThrow("10.0.3.0/24 is named twice");
  expect(() => parseSubnetRanges([])).toThrow("no network");
});

test("reads the routes of the host, but not the default one", () => {
  const table = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
sg1-1\t000312C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
`;
  const routes = parseRoutes(table);
  expect(routes.map((route) => `${route.device} ${formatNetwork(route)}`)).toEqual([
    "docker0 172.17.0.0/16",
    "sg1-1 198.18.3.0/24",
  ]);
  const [subnet] = parseSubnetRange("198.18.3.0/24");
  const [next] = parseSubnetRange("198.18.4.0/24");
  expect([subnet, next].map((each) => each && routes.some((route) => overlaps(route, each)))).toEqual([true, false]);
});
