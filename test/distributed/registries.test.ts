import { describeConformance } from "./conformance.ts";

describeConformance("registries", () => import("../conformance/registries.test.ts"));
