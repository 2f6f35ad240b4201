import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { Images } from "./images.ts";
import type { Purges } from "./purges.ts";
import type { Registries } from "./registries.ts";
import type { VerifiedLayers } from "./verified-layers.ts";

export interface ImageRegistryStore extends ServiceStore {
  readonly images: Images;
  readonly registries: Registries;
  readonly verifiedLayers: VerifiedLayers;
  readonly purges: Purges;
}
