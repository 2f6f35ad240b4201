import { describeConformance } from "./conformance.ts";

describeConformance("accounts", () => import("../conformance/accounts.test.ts"));
