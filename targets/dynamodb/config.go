package dynamodb

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// maxConns bounds the connections of one role; requests beyond it wait.
const maxConns = 16

// region and key are for the signature only, which a stand-in does not check. Nothing comes from the environment.
const (
	region = "us-east-1"
	key    = "eventproof"
)

// config is what a role in any process needs to connect.
type config struct {
	URL      string `json:"url"`
	Table    string `json:"table"`
	Stream   string `json:"stream"` // ARN of the table's change stream
	MaxConns int    `json:"maxConns"`
}

var errURL = errors.New("dynamodb: need a URL of the form http://host:port")

// parseURL returns the address behind a URL.
func parseURL(raw string) (addr string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("%w, not %q", errURL, raw)
	}
	if u.Port() == "" {
		return u.Hostname() + ":80", nil
	}
	return u.Host, nil
}

var (
	trialForm = regexp.MustCompile(`^[a-z0-9]{1,40}$`)
	errTrial  = errors.New("dynamodb: a trial id is 1 to 40 lower-case letters and digits")
)

// tableOf names the table of a trial.
func tableOf(trial string) (string, error) {
	if !trialForm.MatchString(trial) {
		return "", fmt.Errorf("%w, not %q", errTrial, trial)
	}
	return trial + "-log", nil
}

func parseConfig(raw json.RawMessage) (config, error) {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return config{}, fmt.Errorf("dynamodb: reading the role's configuration: %w", err)
	}
	return c, nil
}

// tables returns a client that sends every call once, through http.
func tables(url string, http sdk.HTTPClient) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: region, BaseEndpoint: aws.String(url), HTTPClient: http, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(key, key, ""),
	})
}

// changes is tables for the API of the streams.
func changes(url string, http sdk.HTTPClient) *dynamodbstreams.Client {
	return dynamodbstreams.New(dynamodbstreams.Options{
		Region: region, BaseEndpoint: aws.String(url), HTTPClient: http, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(key, key, ""),
	})
}
