import { messageOf } from "@sandgate/kit/base/domain-error";
import { defineSettings, integer, SettingsError, type SettingValues, text } from "@sandgate/kit/base/settings";
import { type AllowedHosts, readAllowedHosts, registryAllowSetting } from "@sandgate/registry-client/allowed-hosts";
import { readDefaultImage } from "./domain/default-image.ts";
import type { ImageFields } from "./domain/images.ts";
import type { Quotas } from "./domain/quotas.ts";

export const imageRegistrySettings = defineSettings({
  allowedHosts: registryAllowSetting,
  defaultImage: text("SANDGATE_DEFAULT_IMAGE", {
    optional: true,
    doc: "A global default image to make at the first start, as name=reference, or name=reference,port with its readiness port; at later starts the default image of this name follows. A localhost/ reference without a port is on the engine alone",
  }),
  maxImages: integer("SANDGATE_WORKSPACE_MAX_IMAGES", {
    default: 1000,
    min: 0,
    doc: "Images a workspace may have of its own; 0 for no limit",
  }),
  maxRegistries: integer("SANDGATE_WORKSPACE_MAX_REGISTRIES", {
    default: 100,
    min: 0,
    doc: "Registry credentials a workspace may have; 0 for no limit",
  }),
});

export interface ImageRegistrySettings {
  readonly allowedHosts: AllowedHosts;
  /** Created at the first start, and followed at later ones. */
  readonly defaultImage: ImageFields | undefined;
  readonly quotas: Quotas;
}

/** Throws a SettingsError for hosts or a default image that can't be read. */
export function parseImageRegistrySettings(
  settings: SettingValues<typeof imageRegistrySettings>,
): ImageRegistrySettings {
  const { defaultImage, maxImages, maxRegistries } = settings;
  const allowedHosts = parse(imageRegistrySettings.allowedHosts.name, () => readAllowedHosts(settings.allowedHosts));
  return {
    allowedHosts,
    quotas: { maxImages, maxRegistries },
    defaultImage:
      defaultImage === undefined
        ? undefined
        : parse(imageRegistrySettings.defaultImage.name, () => readDefaultImage(defaultImage, allowedHosts)),
  };
}

function parse<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new SettingsError([`${name}: ${messageOf(error)}`]);
  }
}
