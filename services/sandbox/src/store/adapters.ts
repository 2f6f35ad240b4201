import type { StoreAdapters } from "@sandgate/kit/storage/open-store";
import type { SandboxStore } from "./store.ts";

export const stores: StoreAdapters<SandboxStore> = {
  sqlite: () => import("./store.sqlite.ts"),
  mongodb: () => import("./store.mongo.ts"),
};
