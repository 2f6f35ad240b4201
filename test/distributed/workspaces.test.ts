import { describeConformance } from "./conformance.ts";

describeConformance("workspaces", () => import("../conformance/workspaces.test.ts"));
