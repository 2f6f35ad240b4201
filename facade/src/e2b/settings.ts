import { choice, defineSettings, type SettingValues, text } from "@sandgate/kit/base/settings";
import { localhost } from "../previews/hosts.ts";
import { e2bPlaceOf } from "./hosts.ts";

/** The settings of the interface for programs written for E2B. */
export const e2bSettings = defineSettings({
  e2bDomain: text("SANDGATE_E2B_DOMAIN", {
    optional: true,
    doc: "The `<host[:port]>` below which programs written for E2B find this server, as their E2B_DOMAIN. `*.<host>` leads here. Unset: there is no such interface",
  }),
  e2bPublic: choice("SANDGATE_E2B_PUBLIC", ["on", "off"], {
    default: "on",
    doc: "off: what listens on a port of a sandbox is reached through `<port>-<id>.<SANDGATE_E2B_DOMAIN>` only with the sandbox's traffic access token, whatever the program asked for",
  }),
});

export type E2bSettings = SettingValues<typeof e2bSettings>;

const label = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
const hostAndPort = new RegExp(`^(?=.{1,190}$)${label}(?:\\.${label})*(?::\\d{1,5})?$`);

/** What is wrong with the settings, beside the domain of previews and the API's own address. */
export function checkE2bSettings({
  e2bDomain,
  previewDomain,
  publicUrl,
}: E2bSettings & { previewDomain: string; publicUrl: string }): string[] {
  if (e2bDomain === undefined) return [];
  if (!hostAndPort.test(e2bDomain))
    return ["SANDGATE_E2B_DOMAIN must be a host name in lower case, with a port or without"];
  const problems: string[] = [];
  if (previewDomain !== localhost && `.${e2bDomain.split(":")[0]}`.endsWith(`.${previewDomain}`)) {
    problems.push("SANDGATE_E2B_DOMAIN must not be below SANDGATE_PREVIEW_DOMAIN");
  }
  if (e2bPlaceOf(new URL(publicUrl).host, e2bDomain)) {
    problems.push(
      "SANDGATE_PUBLIC_URL must not be api.<domain>, sandbox.<domain> or a port's host, where <domain> is SANDGATE_E2B_DOMAIN",
    );
  }
  return problems;
}
