package postgres

import (
	"context"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/docker"
)

// image is the product as its project's image has it, with what eventproof's schemas need and no more.
func image() docker.Image {
	return docker.Image{
		Store: Name, Title: title, Ref: "postgres:17.6-alpine", Port: 5432,
		Env: func(string) map[string]string { return map[string]string{"POSTGRES_HOST_AUTH_METHOD": "trust"} },
		Cmd: []string{"postgres", "-c", "max_connections=200"},
		URL: func(addr string) string {
			return "postgres://postgres@" + addr + "/postgres?sslmode=disable&target_session_attrs=any"
		},
		Open: func(ctx context.Context, url string) (*provision.Server, error) { return OpenExternal(ctx, url, false) },
	}
}
