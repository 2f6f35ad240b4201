import { openOperator } from "../platform/operator.ts";
import { compareRounds, type Figure, median } from "./figure.ts";
import { connections, load } from "./load.ts";
import { startBenchPlatform } from "./platform.ts";
import { processorMs, residentMb } from "./process-figures.ts";

const rounds = 9;
const seconds = 3;
/**
 * After these the memory is read. They also warm up: V8 compiles what a request runs through, of which a sandbox's has
 * more.
 */
const sandboxRequests = 100_000;
const healthRequests = 30_000;

interface Load {
  perSecond: number;
  /** Processor time of the platform for each request. */
  micros: number;
}

/**
 * GET of a sandbox by an API token, through authentication, membership and one service, against `/healthz` of the same
 * process, which passes the same hooks and serializer; and the memory of the whole process after very many of them.
 */
export async function measureRequests(): Promise<Figure[]> {
  const platform = await startBenchPlatform();
  try {
    const operator = await openOperator(platform);
    const { pid } = platform.process.child;
    const id = await operator.provision(operator.defaultImageId);
    await operator.wait(id);
    const sandbox = { url: `${platform.url}/sandboxes/${id}`, loads: [] as Load[] };
    const health = { url: `${platform.url}/healthz`, loads: [] as Load[] };

    await load(sandbox.url, operator.as, { amount: sandboxRequests });
    const memory = await residentMb(pid);
    await load(health.url, operator.as, { amount: healthRequests });
    for (let round = 0; round < rounds; round++) {
      for (const { url, loads } of [sandbox, health]) {
        const before = await processorMs(pid);
        const { requests } = await load(url, operator.as, { duration: seconds });
        const micros = ((await processorMs(pid)) - before) * 1000;
        loads.push({ perSecond: requests.average, micros: micros / requests.total });
      }
    }

    const rates = ({ loads }: typeof sandbox) => loads.map(({ perSecond }) => perSecond);
    const { value, span } = compareRounds(rates(sandbox), rates(health));
    const medians = (of: (load: Load) => number) =>
      [sandbox, health].map(({ loads }) => median(loads.map(of)).toFixed(0)).join(" against ");
    return [
      {
        what: "GET of a sandbox, of the rate of /healthz",
        value,
        unit: "",
        aim: "at least 0.3",
        detail: `${medians(({ perSecond }) => perSecond)} requests/s, ${medians(({ micros }) => micros)} us of processor time each; ${connections} connections, ${span} of ${seconds} s`,
      },
      {
        what: "memory after requests",
        value: memory,
        unit: " MB",
        aim: "at most 300 MB",
        detail: `resident set of the whole process after ${sandboxRequests} GETs of a sandbox`,
      },
    ];
  } finally {
    await platform.stop();
  }
}
