import ts from 'typescript-eslint';

export default ts.config(
  { ignores: ['built', 'dist', 'src/schema.ts'] },
  ...ts.configs.strict,
  { rules: { 'no-console': 'error', eqeqeq: 'error' } },
  // What ships runs in browsers too.
  { files: ['src/**'], rules: { 'no-restricted-imports': ['error', { patterns: ['node:*'] }] } },
);
