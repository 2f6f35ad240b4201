import type { Image, SandboxRecord } from "@sandgate/client";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { curlLine } from "../curl.ts";
import { formatLabels, parseLabels } from "../labels.ts";
import { sandboxQuery } from "../sandbox-queries.ts";
import { useTitle } from "../title.ts";
import { Button, CodeLine, Field, Loading, PageHeader } from "../ui/basics.tsx";
import { SecondsField } from "../ui/form.tsx";
import { issueOf, Problem } from "../ui/problem.tsx";
import { spell } from "../ui/time.tsx";
import { useWorkspace } from "../workspace.ts";

/** The form of a new sandbox. Its overview then shows how it comes to be. */
export function NewSandbox() {
  useTitle("New sandbox");
  const { workspace, sandgate } = useWorkspace();
  const { like: likeId } = useSearch({ from: "/shell/sandboxes/new" });
  const isLike = likeId !== undefined;
  const like = useQuery({ ...sandboxQuery(sandgate, workspace.id, likeId ?? ""), enabled: isLike });
  const images = useQuery({
    queryKey: [workspace.id, "images", "enabled"],
    queryFn: async ({ signal }) => sandgate.images.list({ enabledOnly: true, limit: 500, signal }),
  });
  return (
    <>
      <PageHeader title="New sandbox" note={`In ${workspace.name}`} />
      {images.isPending && <Loading what="Reading the images" />}
      {[images.error, like.error].map((error, i) => (error ? <Problem key={i} error={error} /> : null))}
      {images.data && !(isLike && like.isPending) && <NewSandboxForm images={images.data} like={like.data} />}
    </>
  );
}

/** Reads a list of texts in JSON. Undefined when it is none. */
function parseCommand(text: string): string[] | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) && value.every((each) => typeof each === "string") ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The form, filled in with what another sandbox was made of if there is one. */
function NewSandboxForm({ images, like }: { images: readonly Image[]; like: SandboxRecord | undefined }) {
  const { sandgate } = useWorkspace();
  const { image: given = like?.imageId } = useSearch({ from: "/shell/sandboxes/new" });
  const navigate = useNavigate();
  const [imageId, setImageId] = useState(
    () => (images.find(({ id, name }) => id === given || name === given) ?? images[0])?.id ?? "",
  );
  const [name, setName] = useState(like?.name ?? "");
  const [labelText, setLabelText] = useState(formatLabels(like?.labels ?? {}));
  const [commandText, setCommandText] = useState(like?.command ? JSON.stringify(like.command) : "");
  const [ttl, setTtl] = useState(String(like?.ttlSeconds ?? ""));
  const [idle, setIdle] = useState(String(like?.idleTimeoutSeconds ?? ""));
  const image = images.find(({ id }) => id === imageId);
  const labels = parseLabels(labelText);
  const command = commandText === "" ? [] : parseCommand(commandText);
  const fields = {
    ...(command && command.length > 0 && { command }),
    ...(name && { name }),
    ...(labels && Object.keys(labels).length > 0 && { labels }),
    ...(ttl && { ttlSeconds: Number(ttl) }),
    ...(idle && { idleTimeoutSeconds: Number(idle) }),
  };
  const provision = useMutation({
    mutationFn: () => sandgate.sandboxes.provision(imageId, fields),
    onSuccess: ({ id }) => navigate({ to: "/sandboxes/$sandboxId", params: { sandboxId: id }, replace: true }),
  });
  function submit(event: FormEvent) {
    event.preventDefault();
    if (labels && command) provision.mutate();
  }
  const shown = {
    image: image?.name,
    ...(command && command.length > 0 && { command }),
    ...(name && { name }),
    ...(labels && Object.keys(labels).length > 0 && { labels }),
    ...(ttl && { ttl_seconds: Number(ttl) }),
    ...(idle && { idle_timeout_seconds: Number(idle) }),
  };
  return (
    <section className="card narrow">
      {like && <NotTakenOver from={like} hasImage={images.some(({ id }) => id === like.imageId)} />}
      <form className="form" onSubmit={submit}>
        <Field label="Image" problem={issueOf(provision.error, "image")} hint={image && <ImageFacts image={image} />}>
          {(control) => (
            <select {...control} value={imageId} onChange={(event) => setImageId(event.target.value)} required>
              {images.length === 0 && <option value="">No image is enabled</option>}
              {images.map((each) => (
                <option key={each.id} value={each.id}>
                  {each.name}
                  {each.isDefault ? " (default)" : ""}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field
          label="Name"
          optional
          hint="Lower-case letters, digits and hyphens. One is made up if you leave it out."
          problem={issueOf(provision.error, "name")}
        >
          {(control) => (
            <input
              {...control}
              value={name}
              onChange={(event) => setName(event.target.value)}
              maxLength={63}
              spellCheck={false}
              autoCapitalize="none"
            />
          )}
        </Field>
        <Field
          label="Labels"
          optional
          hint={'Such as team=web purpose="code review", separated by spaces.'}
          problem={labels ? issueOf(provision.error, "labels") : "Write key=value, separated by spaces."}
        >
          {(control) => (
            <input
              {...control}
              value={labelText}
              onChange={(event) => setLabelText(event.target.value)}
              placeholder="key=value"
              spellCheck={false}
              autoCapitalize="none"
            />
          )}
        </Field>
        <Field
          label="Command"
          optional
          hint={
            <>
              Such as <code>["python", "app.py"]</code>. The image's own unless set.
            </>
          }
          problem={command ? issueOf(provision.error, "command") : "Write a list of texts, as in JSON."}
        >
          {(control) => (
            <input
              {...control}
              className="mono"
              value={commandText}
              onChange={(event) => setCommandText(event.target.value)}
              spellCheck={false}
              autoCapitalize="none"
            />
          )}
        </Field>
        <div className="row">
          <SecondsField
            label="Time to live"
            optional
            value={ttl}
            onChange={setTtl}
            unset="The image's own unless set."
            problem={issueOf(provision.error, "ttl_seconds")}
          />
          <SecondsField
            label="Stop when idle for"
            optional
            value={idle}
            onChange={setIdle}
            unset="It may be idle unless set."
            problem={issueOf(provision.error, "idle_timeout_seconds")}
          />
        </div>
        {provision.isError && <Problem error={provision.error} />}
        <div className="form-end">
          <Button kind="primary" type="submit" busy={provision.isPending} disabled={!image || !labels || !command}>
            Create sandbox
          </Button>
          <Link to="/sandboxes" className="button quiet">
            Cancel
          </Link>
        </div>
      </form>
      <div className="stack">
        <p className="muted">The same from a shell:</p>
        <CodeLine code={curlLine("POST", "/sandboxes/provision", shown)} />
      </div>
    </section>
  );
}

/** What the form can't have of the sandbox that it is filled in from. */
function NotTakenOver({ from, hasImage }: { from: SandboxRecord; hasImage: boolean }) {
  const { name, image, envNames } = from;
  if (hasImage && envNames.length === 0) return null;
  return (
    <div className="notice">
      {!hasImage && (
        <p>
          The image of {name}, <span className="mono">{image}</span>, isn't enabled any more. Choose another.
        </p>
      )}
      {envNames.length > 0 && (
        <p>
          The environment variables of {name} aren't taken over, since their values are shown to nobody:{" "}
          <span className="mono">{envNames.join(" ")}</span>. Set them from a shell where they are needed.
        </p>
      )}
    </div>
  );
}

function ImageFacts({ image }: { image: Image }) {
  const reference = /[:@][^/]*$/.test(image.image) ? image.image : `${image.image}:${image.tag}`;
  return (
    <>
      <span className="mono">{reference}</span>, {image.memoryMb} MiB of memory
      {image.ttlSeconds !== null && `, lives for ${spell(image.ttlSeconds)} at most`}
    </>
  );
}
