/** With which a program opens a private preview. */
export const previewTokenHeader = "x-sandgate-token";
/** What a browser has after it opened a link. */
const cookieName = "__Host-sandgate";
/** The field of the query by which a browser opens a preview once. */
const linkField = "sandgate_link";

/** A list of pairs without ours, and the value of ours that came first. */
interface Taken {
  rest: string | undefined;
  value: string | undefined;
}

/** Takes our cookie out of a Cookie header. */
export function takeCookie(header: string | undefined): Taken {
  if (header === undefined) return { rest: undefined, value: undefined };
  const ours: string[] = [];
  const others = header.split(";").filter((pair) => {
    const [name, value] = splitAt(pair, "=");
    if (name.trim() !== cookieName) return true;
    ours.push(value.trim());
    return false;
  });
  const rest = others.join(";").trim();
  return { rest: rest === "" ? undefined : rest, value: ours[0] };
}

/** Takes our field out of the query of a URL; all else of the URL stays as it is. */
export function takeLink(url: string): { url: string; value: string | undefined } {
  const [path, query] = splitAt(url, "?");
  const ours: string[] = [];
  const others = query.split("&").filter((field) => {
    const [name, value] = splitAt(field, "=");
    if (decode(name) !== linkField) return true;
    ours.push(decode(value));
    return false;
  });
  if (ours.length === 0) return { url, value: undefined };
  return { url: others.length === 0 ? path : `${path}?${others.join("&")}`, value: ours[0] };
}

/** The address of a preview's first page, perhaps with what opens the preview once. */
export function previewAddressOf(origin: string, link: string | undefined): string {
  return link === undefined ? `${origin}/` : `${origin}/?${linkField}=${encodeURIComponent(link)}`;
}

/** The Set-Cookie header that keeps our cookie until the preview ends. */
export function setCookieOf(value: string, expiresAt: Date): string {
  return `${cookieName}=${value}; Path=/; Expires=${expiresAt.toUTCString()}; Secure; HttpOnly; SameSite=Lax`;
}

/**
 * A Set-Cookie header of the server in the sandbox as it may reach a browser: for this host alone. Undefined when it
 * would set our cookie.
 */
export function limitSetCookie(header: string): string | undefined {
  const [pair = "", ...attributes] = header.split(";");
  if (splitAt(pair, "=")[0].trim() === cookieName) return undefined;
  const kept = attributes.filter((attribute) => splitAt(attribute, "=")[0].trim().toLowerCase() !== "domain");
  return [pair, ...kept].join(";");
}

/** What is before and after the first separator. */
function splitAt(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at === -1 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** As a form encodes it. What is malformed stays as it is. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}

/** Returns an answer's header as the browser may get it; undefined for one that would act on other previews' hosts. */
export function changePreviewAnswer(name: string, value: string): string | undefined {
  if (name === "set-cookie") return limitSetCookie(value);
  // Browsers clear the cookies of the whole domain.
  return name === "clear-site-data" ? undefined : value;
}
