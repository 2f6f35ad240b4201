import { describeConformance } from "./conformance.ts";

describeConformance("images", () => import("../conformance/images.test.ts"));
