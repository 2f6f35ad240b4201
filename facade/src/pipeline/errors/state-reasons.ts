interface StateReason {
  meaning: string;
  hint: string;
}

/** What a sandbox's `state_reason` means, and what its user can do about it. */
export const stateReasons: Readonly<Record<string, StateReason>> = {
  stopped_by_user: { meaning: "A user stopped it.", hint: "Provision a new one." },
  stopped_by_operator: { meaning: "An operator stopped it.", hint: "Ask the operator before you provision it again." },
  ttl_expired: {
    meaning: "Its time to live ended.",
    hint: "Increase `ttl_seconds`, or extend it in time with POST /sandboxes/{sandbox_id}/extend.",
  },
  idle: { meaning: "Nothing used it for as long as it may be idle.", hint: "Increase `idle_timeout_seconds`." },
  workspace_deleted: { meaning: "Its workspace was deleted.", hint: "Provision it in another workspace." },
  image_pull_unauthorized: {
    meaning: "The registry refused the credential, or there was none.",
    hint: "Give the image a registry credential that can pull it (POST /registries, `registry_id`).",
  },
  image_not_found_in_registry: {
    meaning: "The registry, or for a `localhost/` image the engine, has no such image.",
    hint: "Check the image's name and tag. An image at localhost/ comes from the engine alone, and an operator has to load it there.",
  },
  image_invalid: {
    meaning: "The image's manifest, signature or platform can't be used.",
    hint: "The image's manifest or platform can't be used. Build it for the platform of the nodes.",
  },
  image_pull_failed: {
    meaning: "The image could not be pulled or stored; none of the other reasons applies.",
    hint: "The image could not be pulled to a node. Try again, or use a smaller image.",
  },
  registry_unreachable: {
    meaning: "The registry did not respond, or refused because of too many requests.",
    hint: "The registry did not respond. Check its address, or try again later.",
  },
  pull_timeout: {
    meaning: "The image was not pulled and started in time.",
    hint: "The pull took too long. Try again, or use a smaller image.",
  },
  provisioning_failed: {
    meaning: "The cluster refused the sandbox, by a quota, a limit or a policy.",
    hint: "The cluster refused the sandbox, by a quota or a policy of its own. Its operator can change that.",
  },
  unschedulable: {
    meaning: "No node could take it in time, or its node refused it.",
    hint: "No node has room for it. Lower `memory_mb` of the image, stop other sandboxes, or try again later.",
  },
  node_error: {
    meaning: "Its node could not prepare a place for it, such as its network.",
    hint: "Its node could not prepare it. Provision it again; if that doesn't help, the operator has to look at the nodes.",
  },
  container_config_error: {
    meaning: "The image can't run under the platform's rules.",
    hint: "The image can't run under the platform's rules, such as the one against running as root. Set a numeric USER in it.",
  },
  start_failed: {
    meaning: "The container was created, but its program could not be started.",
    hint: "The container could not be started. Check the command and the platform of the image.",
  },
  isolation_unavailable: {
    meaning: "The rules that isolate sandboxes could not be set up.",
    hint: "Try again later; the operator has to make isolation work.",
  },
  runtime_unavailable: {
    meaning: "The engine or cluster could not be reached for as long as a pull may take.",
    hint: "Try again later.",
  },
  out_of_memory: {
    meaning: "It used more memory than its limit and was killed.",
    hint: "The container ran out of memory. Increase `memory_mb` of the image.",
  },
  disk_full: {
    meaning: "It wrote more to its disk than it may.",
    hint: "The container wrote more to its disk than it may. Write less, or delete what it no longer needs.",
  },
  readiness_timeout: {
    meaning: "It ran, but was not ready in time.",
    hint: "The container ran but did not become ready. Check `readiness_port` and the logs.",
  },
  exited: {
    meaning:
      "Its program ended by itself. `exit_code` is its code, or 128 plus the number of the signal that ended it.",
    hint: "The container exited. Read its logs with GET /sandbox/monitoring/{sandbox_id}.",
  },
  evicted: {
    meaning: "Its node was short of memory, disk or inodes and ended it.",
    hint: "The node ran short of memory, disk or inodes. Provision it again.",
  },
  preempted: {
    meaning: "It had to make room for more important work.",
    hint: "More important work took its place. Provision it again.",
  },
  node_drained: {
    meaning: "Its node was taken out of service.",
    hint: "Its node was taken out of service. Provision it again.",
  },
  node_lost: {
    meaning: "Its node stopped answering or was restarted.",
    hint: "Its node stopped answering. Provision it again.",
  },
  runtime_lost: {
    meaning: "Its container was removed from outside the platform.",
    hint: "The container was removed from outside the platform. Provision it again.",
  },
};
