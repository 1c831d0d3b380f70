// Builds the page into dist/: one script, one style sheet, index.html, each packed with gzip. Beside them is
// `sources`, the digest of what it was built from: crates/app/console takes the page only if it fits.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, "dist");
/** Bytes of everything packed at most. */
const LIMIT = 500 * 1024;

/** Files that the page is made of, sorted by path; crates/app/console/build.rs goes the same way. */
function sources() {
  const own = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"];
  const within = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(here.length + 1));
  return [...own, ...within].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

function digest() {
  const hash = createHash("sha256");
  for (const path of sources()) {
    const content = readFileSync(join(here, path));
    hash.update(`${path}\0${content.length}\0`).update(content);
  }
  return hash.digest("hex");
}

if (process.argv.includes("--digest")) {
  console.log(digest());
  process.exit(0);
}
const { build } = await import("esbuild");
rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  outdir: "dist",
  entryNames: "[name]-[hash]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
  write: false,
  logLevel: "warning",
});

const files = new Map(result.outputFiles.map((file) => [basename(file.path), Buffer.from(file.contents)]));
const named = (start) => [...files.keys()].find((name) => name.startsWith(start));
files.set("icon.svg", readFileSync(join(here, "src/icon.svg")));
const html = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("app.js", named("app-"))
  .replace("style.css", named("style-"));
files.set("index.html", Buffer.from(html));

let packed = 0;
for (const [name, content] of files) {
  const small = gzipSync(content, { level: 9 });
  packed += small.length;
  writeFileSync(join(dist, `${name}.gz`), small);
}
writeFileSync(join(dist, "sources"), `${digest()}\n`);
console.log(`page: ${files.size} files, ${(packed / 1024).toFixed(1)} KiB compressed`);
if (packed > LIMIT) {
  console.error(`page: larger than ${LIMIT / 1024} KiB`);
  process.exit(1);
}
