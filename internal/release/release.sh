#!/usr/bin/env bash
# release.sh VERSION makes the commit and the tags of a release of the core and of every module that users import or install. It
# pushes nothing. RELEASE.md has the whole procedure.
set -euo pipefail
version=${1:?usage: internal/release/release.sh v1.2.3}
cd "$(dirname "$0")/../.."
core=github.com/seed-c794f7ef/kahn
# What is imported comes before what imports it. bench, examples, examples/distributed and verify are not released.
modules="expression schema schedule progress inspector otel definition/yaml store/postgres store/sqlite temporal river cmd/kahn"

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "release: $version is no version" >&2; exit 1; }
for tag in "$version" $(printf "%s/$version " $modules); do
	! git rev-parse -q --verify "refs/tags/$tag" >/dev/null || { echo "release: the tag $tag exists" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree"; rm -rf "$work"' EXIT
git worktree add -q --detach "$work/tree" HEAD
cd "$work/tree"
for dir in $modules; do
	for own in $core $(printf "$core/%s " $modules); do
		if grep -qE "^(replace|[[:space:]])[[:space:]]*$own =>" "$dir/go.mod"; then
			GOWORK=off go -C "$dir" mod edit -dropreplace="$own" -require="$own@$version"
		fi
	done
	if grep -qE '^replace|v0\.0\.0(-00010101000000-000000000000)?( |$)' "$dir/go.mod"; then
		echo "release: $dir/go.mod requires what no user can fetch" >&2
		exit 1
	fi
done
git commit -qam "release: $version"
for tag in "$version" $(printf "%s/$version " $modules); do
	git tag "$tag"
	echo "$tag"
done
