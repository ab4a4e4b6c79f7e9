package dynamodb

import (
	"context"

	"github.com/eventproof/eventproof/provision"
	"github.com/eventproof/eventproof/provision/docker"
)

// image is DynamoDB Local: its vendor's stand-in, with its data on disk.
func image() docker.Image {
	return docker.Image{
		Store: Name, Title: title, Ref: "amazon/dynamodb-local:3.1.0", Emulated: true, Port: 8000,
		Env:  func(string) map[string]string { return nil },
		Cmd:  []string{"-jar", "DynamoDBLocal.jar", "-sharedDb", "-dbPath", "/home/dynamodblocal"},
		URL:  func(addr string) string { return "http://" + addr },
		Open: func(ctx context.Context, url string) (*provision.Server, error) { return OpenExternal(ctx, url, false) },
	}
}
