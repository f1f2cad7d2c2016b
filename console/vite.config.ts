import { paraglideVitePlugin } from '@inlang/paraglide-js';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// `light-dark()` is written out as it stands: these are the first versions that know it.
const BROWSERS = ['chrome123', 'edge123', 'firefox121', 'safari17.5'];

/** A server to develop against. */
const SERVER = process.env.ISOBAR_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [
    paraglideVitePlugin({
      project: './project.inlang',
      outdir: './src/paraglide',
      strategy: ['localStorage', 'preferredLanguage', 'baseLocale'],
      emitTsDeclarations: true,
    }),
    svelte(),
  ],
  build: {
    target: BROWSERS,
    cssTarget: BROWSERS,
    // One style sheet, and no preloading: a page that is never opened is never fetched.
    cssCodeSplit: false,
    modulePreload: false,
    // A picture within a style would be a `data:` address, which the content security policy would have to allow.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    // For .size-limit.js.
    manifest: true,
  },
  server: { proxy: { '/v2': SERVER, '/health': SERVER, '/metrics': SERVER } },
});
