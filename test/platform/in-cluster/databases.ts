import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { OwnCluster, TestCluster } from "@sandgate/test-support/cluster";
import { findFreePort, startProcess } from "@sandgate/test-support/process";
import { until } from "@sandgate/test-support/until";
import { type Document, MongoClient } from "mongodb";
import { awaitPods } from "./pods.ts";
import { databases, serversNamespace } from "./servers.ts";

/**
 * Creates, as deploy/compose/mongodb-users.js does, a replica set of one, and for each service a user with a database
 * of its own.
 */
export async function initiateDatabases(cluster: TestCluster, own: OwnCluster, folder: string): Promise<void> {
  const pod = { namespace: serversNamespace, name: "mongodb-0" };
  await awaitPods(cluster, "kube-system");
  await awaitPods(cluster, serversNamespace);
  // The first user may be made from the server's own loopback address alone.
  const port = await findFreePort();
  const forward = startProcess(
    own.kubectlProgram,
    [`--kubeconfig=${cluster.kubeconfig}`, `--namespace=${pod.namespace}`, "port-forward", pod.name, `${port}:27017`],
    // Where kubectl keeps what it has found out.
    { env: { HOME: folder } },
  );
  const operate = async (auth: string, work: (run: (command: Document) => Promise<Document>) => Promise<unknown>) => {
    const client = new MongoClient(`mongodb://${auth}127.0.0.1:${port}`, { directConnection: true });
    try {
      return await work((command) => client.db("admin").command(command));
    } finally {
      await client.close();
    }
  };
  try {
    await until(() => {
      if (!forward.output().includes("Forwarding from")) throw new Error(`kubectl port-forward: ${forward.output()}`);
    });
    const password = await readFile(join(folder, "secrets/mongodb/root-password"), "utf8");
    await operate("", async (run) => {
      await run({ replSetInitiate: { _id: "rs0", members: [{ _id: 0, host: databases.host }] } });
      await until(async () => {
        if (!(await run({ hello: 1 })).isWritablePrimary) throw new Error("the replica set has no primary");
      });
      await run({ createUser: "root", pwd: password, roles: ["root"] });
    });
    await operate(`root:${password}@`, async (run) => {
      for (const service of ["identity", "workspace", "image-registry", "sandbox", "telemetry"]) {
        const address = new URL(await readFile(join(folder, `secrets/${service}/database`), "utf8"));
        const roles = [{ role: "readWrite", db: `sandgate_${service.replace("-", "_")}` }];
        await run({ createUser: address.username, pwd: address.password, roles });
      }
    });
  } finally {
    await forward.stop();
  }
}
