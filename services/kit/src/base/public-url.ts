import { webAddress } from "./settings.ts";

/** Identity compares addresses below it with those that the facade makes, so both read it alike. */
export const publicUrl = webAddress("SANDGATE_PUBLIC_URL", {
  default: "http://127.0.0.1:8080",
  doc: "How clients reach the public API, a path prefix included: the base of docs_url and of links in mails, and the issuer of session tokens",
});
