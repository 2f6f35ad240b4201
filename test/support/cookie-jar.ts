/** What a browser does with redirects and cookies, for tests that need no more of one. */
export interface CookieJar {
  /**
   * Sends a request with the cookies that the server's host has set, and keeps those of the response. Follows no
   * redirect.
   */
  fetch(url: string | URL, init?: RequestInit): Promise<Response>;
}

/** A browser without anything stored. Its cookies are by path, and never sent to a path that they are not for. */
export function createCookieJar(): CookieJar {
  const cookies = new Map<string, { origin: string; path: string; name: string; value: string }>();

  return {
    async fetch(url, init = {}) {
      const { origin, pathname } = new URL(url);
      const sent = [...cookies.values()].filter((each) => each.origin === origin && pathname.startsWith(each.path));
      const headers = new Headers(init.headers);
      if (sent.length > 0) headers.set("cookie", sent.map(({ name, value }) => `${name}=${value}`).join("; "));
      const response = await fetch(url, { ...init, headers, redirect: "manual" });
      for (const line of response.headers.getSetCookie()) {
        const [pair = "", ...attributes] = line.split(";").map((part) => part.trim());
        const [name = "", value = ""] = [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)];
        const path = attributes.find((each) => /^path=/i.test(each))?.slice(5) ?? "/";
        const key = `${origin} ${path} ${name}`;
        if (attributes.some((each) => /^(max-age=0|expires=Thu, 01 Jan 1970.*)$/i.test(each))) cookies.delete(key);
        else cookies.set(key, { origin, path, name, value });
      }
      return response;
    },
  };
}
