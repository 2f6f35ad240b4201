/** A gate. */
export function Brand() {
  return (
    <>
      <svg viewBox="0 0 20 20" aria-hidden="true">
        <rect width="20" height="20" rx="5" fill="currentColor" />
        <path d="M5 15.5V9a5 5 0 0 1 10 0v6.5M10 9v6.5" fill="none" stroke="var(--sunken)" strokeWidth="1.9" />
      </svg>
      Sandgate
    </>
  );
}
