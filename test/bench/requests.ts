import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import autocannon from "autocannon";
import { openTarget } from "../conformance/target.ts";
import { type Figure, median } from "./figure.ts";

const rounds = 5;
const seconds = 3;
const connections = 16;

/** GET of a small resource through authentication, limits, membership and one service, against a bare route of the same bytes. */
export async function measureRequests(): Promise<Figure[]> {
  const target = await openTarget({ SANDGATE_RATE_LIMIT: "0" });
  const { token, workspace } = target.operator;
  const path = `/workspaces/${workspace}`;
  const { text } = await target.get(path, { token });
  const bare = spawn(process.execPath, [fileURLToPath(new URL("./bare-server.ts", import.meta.url)), text]);
  try {
    const [line] = await once(bare.stdout, "data");
    const load = async (url: string) => {
      const result = await autocannon({
        url,
        connections,
        duration: seconds,
        headers: { authorization: `Bearer ${token}` },
      });
      if (result.non2xx > 0 || result.errors > 0)
        throw new Error(`${url}: ${result.non2xx} failed, ${result.errors} errors`);
      return result.requests.average;
    };
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round <= rounds; round++) {
      const pair = [await load(target.url + path), await load(`${String(line).trim()}${path}`)] as const;
      // The first round warms both up.
      if (round === 0) continue;
      ours.push(pair[0]);
      theirs.push(pair[1]);
    }
    return [
      {
        what: "GET of a small resource, of a bare Fastify route's rate",
        value: median(ours.map((rate, index) => rate / (theirs[index] ?? Number.NaN))),
        unit: "",
        aim: "at least 0.45",
        detail: `${median(ours).toFixed(0)}/s against ${median(theirs).toFixed(0)}/s, ${connections} connections, median of ${rounds} rounds of ${seconds} s`,
      },
    ];
  } finally {
    bare.kill();
    await target.close();
  }
}
