import type { ReactNode } from "react";
import { Field } from "./basics.tsx";
import { Brand } from "./brand.tsx";

/** A page of somebody who isn't signed in. */
export function Entry({ title, children }: { title: string; children: ReactNode }) {
  return (
    <main className="entry">
      <p className="brand">
        <Brand />
      </p>
      <section className="card">
        <h1>{title}</h1>
        {children}
      </section>
    </main>
  );
}

/** The address by which somebody signs in. */
export function EmailField({ value, onChange }: { value: string; onChange(value: string): void }) {
  return (
    <Field label="Email">
      {(control) => (
        <input
          {...control}
          name="username"
          value={value}
          onChange={(event) => onChange(event.target.value)}
          autoComplete="username"
          inputMode="email"
          autoCapitalize="none"
          spellCheck={false}
          required
        />
      )}
    </Field>
  );
}
