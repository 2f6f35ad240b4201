import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { auditActions } from "@sandgate/kit/base/audit-actions";
import { matchesSubject } from "@sandgate/kit/events/subject";
import { Role } from "@sandgate/proto/common/v1/access";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { MemberAddedSchema, MemberUpdatedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { expect, test } from "vitest";
import { auditedActions, auditedSubjects, toAuditEntry, usedEvent } from "./audited-events.ts";

/** Events that report a change of state, rather than what somebody did. */
const notAudited = [
  "sandgate.image-registry.workspace.workspace_purged.v1",
  "sandgate.sandbox.sandbox.failed.v1",
  "sandgate.sandbox.sandbox.ready.v1",
  "sandgate.sandbox.sandbox.stopped.v1",
  "sandgate.sandbox.workspace.workspace_purged.v1",
  "sandgate.telemetry.workspace.workspace_purged.v1",
];

test("every event of the contracts has its action in the audit log, and is consumed, unless it reports a change of state", () => {
  const folder = join(import.meta.dirname, "../../../../proto");
  const declared = globSync("sandgate/**/*_events.proto", { cwd: folder }).flatMap((path) =>
    [...readFileSync(join(folder, path), "utf8").matchAll(/^\/\/ (sandgate\.\S+\.v1)\b/gm)].map(
      ([, subject = ""]) => subject,
    ),
  );
  const audited = [...Object.keys(auditedActions), usedEvent].map((event) => `sandgate.${event}.v1`);
  expect([...audited, ...notAudited].toSorted()).toEqual(declared.toSorted());
  for (const subject of audited) {
    expect(
      auditedSubjects.some((pattern) => matchesSubject(pattern, subject)),
      subject,
    ).toBe(true);
  }
  for (const action of Object.values(auditedActions)) expect(auditActions).toContain(action);
});

/** Input of processes and ports passes by the thousand. Who started the process has an entry. */
const passing = ["process.write", "port.connect"];

test("every action has its entry by an event or as a use of a sandbox, unless it only reads", () => {
  const folder = join(import.meta.dirname, "../../../sandbox/src/handlers");
  const uses = globSync("*.ts", { cwd: folder }).flatMap((path) =>
    [...readFileSync(join(folder, path), "utf8").matchAll(/(?:fileUse|uses\.start|uses\.of)\([^"]*"(\w+\.\w+)"/g)].map(
      ([, action = ""]) => action,
    ),
  );
  const told = new Set([...Object.values(auditedActions), ...uses]);
  const changing = auditActions.filter((action) => !/\.(list|read|read_logs)$/.test(action));
  expect(changing.filter((action) => !told.has(action))).toEqual(passing);
});

test("an entry of a member tells the role that they were given, unless it is one of a newer version", () => {
  const given = (name: "added" | "updated", role: Role) => {
    const schema = name === "added" ? MemberAddedSchema : MemberUpdatedSchema;
    const subject = `sandgate.workspace.member.${name}.v1`;
    const payload = anyPack(schema, create(schema, { workspaceId: "w", userId: "ann", role }));
    return toAuditEntry(create(EventSchema, { subject, entityId: "w/ann", payload }))?.target;
  };
  const ann = { type: "member", id: "ann" };
  expect(given("added", Role.ADMIN)).toEqual({ ...ann, details: { role: "admin" } });
  expect(given("updated", Role.OWNER)).toEqual({ ...ann, details: { role: "owner" } });
  expect(given("updated", 9 as Role)).toEqual(ann);
});
