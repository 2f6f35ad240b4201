import { buffer } from "node:stream/consumers";
import { installationLabels, installationSelector } from "@sandgate/container-labels";
import { callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus, statusOf } from "@sandgate/docker-engine/errors";
import { pack } from "tar-stream";
import { type HelperProgram, readHelperProgram } from "../helper-program.ts";
import { helperFolder } from "../operations.ts";

/** Of filling the volume, each after another process was quicker. */
const attempts = 10;

/** The volume that brings the helper into sandboxes, mounted for reading alone. */
export interface HelperVolume {
  /**
   * Its name, once it is filled, which takes a container of this image for a moment. The first call
   * of a process fills it; repetitions cost nothing. Throws the engine's error.
   */
  require(reference: string): Promise<string>;
}

/** A volume for each build of the helper, since running sandboxes keep theirs. */
export function createHelperVolume(o: { engine: Engine; installationId: string; prefix: string }): HelperVolume {
  const { engine, installationId } = o;
  let filling: Promise<string> | undefined;

  async function fill(reference: string): Promise<string> {
    const { Architecture: architecture } = await callEngine(() => engine.info());
    const program = await readHelperProgram(architecture);
    const name = `${o.prefix}${program.sha256.slice(0, 12)}`;
    await removeOthers(name);
    const labels = installationLabels(installationId);
    await callEngine((abortSignal) => engine.createVolume({ Name: name, Labels: labels, abortSignal }));
    const archive = await archiveOf(program);
    for (let attempt = 1; ; attempt++) {
      const failure = await put(archive, { name, reference, labels });
      if (!failure) return name;
      if (attempt === attempts) throw failure;
    }
  }

  /**
   * Unpacks the archive by a container that has the volume and never runs. Its name is known, so one that a crash left is
   * used and removed. Answers why it failed where another process may have removed that container meanwhile.
   */
  async function put(
    archive: Buffer,
    { name, reference, labels }: { name: string; reference: string; labels: Record<string, string> },
  ): Promise<Error | undefined> {
    const container = engine.getContainer(`${name}-fill`);
    await ignoreStatus(
      [409],
      callEngine((abortSignal) =>
        engine.createContainer({
          name: `${name}-fill`,
          Image: reference,
          Labels: labels,
          Entrypoint: [`${helperFolder}/helper`],
          NetworkDisabled: true,
          HostConfig: { Mounts: [helperMount(name, { readOnly: false })] },
          abortSignal,
        }),
      ),
    );
    try {
      // Over one that is there, since a crash may have cut it.
      await callEngine((abortSignal) => container.putArchive(archive, { path: helperFolder, abortSignal }));
      return undefined;
    } catch (error) {
      // 500: its files went while they were unpacked.
      if (error instanceof Error && [404, 500].includes(statusOf(error) ?? 0)) return error;
      throw error;
    } finally {
      await ignoreStatus(
        [404, 409],
        callEngine((abortSignal) => container.remove({ force: true, v: true, abortSignal })),
      );
    }
  }

  /** The engine keeps those that sandboxes use. */
  async function removeOthers(name: string): Promise<void> {
    const filters = { label: [installationSelector(installationId)] };
    const { Volumes: volumes } = await callEngine((abortSignal) => engine.listVolumes({ filters, abortSignal }));
    for (const { Name: other } of volumes ?? []) {
      if (other === name) continue;
      await ignoreStatus(
        [404, 409],
        callEngine((abortSignal) => engine.getVolume(other).remove({ abortSignal })),
      );
    }
  }

  return {
    require(reference) {
      filling ??= fill(reference).catch((error: unknown) => {
        filling = undefined;
        throw error;
      });
      return filling;
    },
  };
}

/** How a container has the volume. Nothing that its image has at the path is copied into it. */
export function helperMount(name: string, o: { readOnly: boolean }) {
  return {
    Type: "volume" as const,
    Source: name,
    Target: helperFolder,
    ReadOnly: o.readOnly,
    // The client's types want all three.
    VolumeOptions: { NoCopy: true, Labels: {}, DriverConfig: { Name: "local", Options: {} } },
  };
}

function archiveOf({ bytes }: HelperProgram): Promise<Buffer> {
  const archive = pack();
  archive.entry({ name: "helper", mode: 0o555, size: bytes.length }, bytes);
  archive.finalize();
  return buffer(archive);
}
