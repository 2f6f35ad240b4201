import axe from "axe-core";
import type { Page } from "playwright-core";

/** A finding of axe that is not ours to mend. */
interface AllowedFlaw {
  rule: string;
  /** A part of the element's HTML. */
  element: string;
  reason: string;
}

interface FlawOptions {
  /** A selector: axe looks at that part of the page alone. */
  within?: string;
  allowed?: readonly AllowedFlaw[];
}

/**
 * What is wrong with the page as it is now, a line each: what axe finds on a wide screen in light colours and on the
 * narrowest phones in dark ones, and whether it is wider than those. Leaves it on the phone.
 */
export async function findFlaws(page: Page, o: FlawOptions = {}): Promise<string[]> {
  await page.evaluate(axe.source);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.emulateMedia({ colorScheme: "light" });
  const onScreen = await findViolations(page, o);
  await page.setViewportSize({ width: 320, height: 640 });
  await page.emulateMedia({ colorScheme: "dark" });
  const onPhone = await findViolations(page, o);
  const width = await page.evaluate("document.documentElement.scrollWidth");
  return [...onScreen, ...onPhone, ...(width === 320 ? [] : [`is ${width} px wide on a phone`])];
}

async function findViolations(page: Page, { within = "html", allowed = [] }: FlawOptions): Promise<string[]> {
  // Colours fade into those of the other scheme. What blinks never ends.
  await page.evaluate(
    "Promise.allSettled(document.getAnimations().filter(({ effect }) => effect.getComputedTiming().endTime !== Infinity).map(({ finished }) => finished)).then(() => {})",
  );
  const { violations } = await page.evaluate<axe.AxeResults>(`axe.run("${within}", { resultTypes: ["violations"] })`);
  return violations.flatMap(({ id, nodes }) =>
    nodes
      .filter(({ html }) => !allowed.some(({ rule, element }) => rule === id && html.includes(element)))
      .map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  );
}
