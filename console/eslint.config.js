import globals from 'globals';
import svelte from 'eslint-plugin-svelte';
import ts from 'typescript-eslint';
import svelteConfig from './svelte.config.js';

export default ts.config(
  { ignores: ['dist', 'src/paraglide', 'src/api/schema.d.ts', 'project.inlang'] },
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: { ...globals.browser, ...globals.node } } },
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { extraFileExtensions: ['.svelte'], parser: ts.parser, svelteConfig } },
  },
  {
    rules: {
      'no-console': 'error',
      eqeqeq: 'error',
      'prefer-const': 'off',
      'svelte/prefer-const': 'error',
      // Markup that is not ours never becomes HTML.
      'svelte/no-at-html-tags': 'error',
      // Many maps and dates here are plain values that nothing watches.
      'svelte/prefer-svelte-reactivity': 'off',
      // Written for SvelteKit's router.
      'svelte/no-navigation-without-resolve': 'off',
    },
  },
);
