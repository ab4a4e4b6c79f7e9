package dynamodb

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The parts of ARNs.
const (
	region    = "local"
	arnPrefix = "arn:aws:dynamodb:" + region + ":000000000000:table/"
)

type schemaElement struct {
	AttributeName string `json:"AttributeName"`
	KeyType       string `json:"KeyType"`
}

type attributeDefinition struct {
	AttributeName string `json:"AttributeName"`
	AttributeType string `json:"AttributeType"`
}

type projection struct {
	ProjectionType   string   `json:"ProjectionType"`
	NonKeyAttributes []string `json:"NonKeyAttributes,omitempty"`
}

type throughput struct {
	ReadCapacityUnits  int64 `json:"ReadCapacityUnits"`
	WriteCapacityUnits int64 `json:"WriteCapacityUnits"`
}

type streamSpecification struct {
	StreamEnabled  bool   `json:"StreamEnabled"`
	StreamViewType string `json:"StreamViewType,omitempty"`
}

type createTableInput struct {
	TableName              string
	AttributeDefinitions   []attributeDefinition
	KeySchema              []schemaElement
	BillingMode            string
	ProvisionedThroughput  *throughput
	StreamSpecification    *streamSpecification
	GlobalSecondaryIndexes []struct {
		IndexName             string
		KeySchema             []schemaElement
		Projection            projection
		ProvisionedThroughput *throughput
	}
}

func (in *createTableInput) tableNames() []string { return []string{in.TableName} }

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

func checkName(what, name string) *apiError {
	if !tableName.MatchString(name) {
		return invalid("Invalid table/index name.  Table/index names must be between 3 and 255 characters long, and may contain only the characters a-z, A-Z, 0-9, '_', '-', and '.': %s %q", what, name)
	}
	return nil
}

func (s *Server) createTable(_ context.Context, _ *request, in *createTableInput) (any, error) {
	def, bad := in.definition()
	if bad != nil {
		return nil, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[def.Name] != nil {
		return nil, fault(excInUse, "Table already exists: %s", def.Name)
	}
	wall := s.clock.Wall().UTC()
	def.Created = wall.UnixMilli()
	def.ID = fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(s.last+1), wall.UnixMilli()&0xffffffffffff)
	if def.View != "" {
		// The number makes the label unique also for tables of one name made in one millisecond.
		def.Label = wall.Format("2006-01-02T15:04:05.000") + fmt.Sprintf(".%d", s.last+1)
		def.Shards = s.opt.Shards
	}
	if err := s.commit(logRecord{Kind: recordCreate, Create: &def}); err != nil {
		return nil, err
	}
	return map[string]any{"TableDescription": s.tables[def.Name].describe("ACTIVE")}, nil
}

func (in *createTableInput) definition() (definition, *apiError) {
	def := definition{Name: in.TableName, Attributes: map[string]string{}, Billed: in.BillingMode}
	if err := checkName("table", in.TableName); err != nil {
		return def, err
	}
	for _, a := range in.AttributeDefinitions {
		if !slices.Contains([]string{"S", "N", "B"}, a.AttributeType) || a.AttributeName == "" {
			return def, invalid("Member must satisfy enum value set: [B, N, S]: attribute %q has type %q", a.AttributeName, a.AttributeType)
		}
		if def.Attributes[a.AttributeName] != "" {
			return def, invalidParam("Duplicate AttributeName in AttributeDefinitions: %s", a.AttributeName)
		}
		def.Attributes[a.AttributeName] = a.AttributeType
	}
	used := map[string]bool{}
	schema := func(elements []schemaElement) (keySchema, *apiError) {
		var k keySchema
		if len(elements) < 1 || len(elements) > 2 || elements[0].KeyType != "HASH" ||
			len(elements) == 2 && (elements[1].KeyType != "RANGE" || elements[1].AttributeName == elements[0].AttributeName) {
			return k, invalidParam("Invalid KeySchema: a HASH key, then at most one RANGE key, of different attributes")
		}
		for i, e := range elements {
			if def.Attributes[e.AttributeName] == "" {
				return k, invalidParam("Some index key attributes are not defined in AttributeDefinitions. Keys: [%s]", e.AttributeName)
			}
			used[e.AttributeName] = true
			if i == 0 {
				k.Hash = e.AttributeName
			} else {
				k.Range = e.AttributeName
			}
		}
		return k, nil
	}
	var err *apiError
	if def.Key, err = schema(in.KeySchema); err != nil {
		return def, err
	}
	for _, g := range in.GlobalSecondaryIndexes {
		x := indexDefinition{Name: g.IndexName, Projection: g.Projection.ProjectionType, Include: g.Projection.NonKeyAttributes}
		if err := checkName("index", x.Name); err != nil {
			return def, err
		}
		if slices.ContainsFunc(def.Indexes, func(d indexDefinition) bool { return d.Name == x.Name }) {
			return def, invalidParam("Duplicate index name: %s", x.Name)
		}
		if !slices.Contains([]string{"ALL", "KEYS_ONLY", "INCLUDE"}, x.Projection) || (x.Projection == "INCLUDE") != (len(x.Include) > 0) {
			return def, invalidParam("Unknown or incomplete ProjectionType: %q with NonKeyAttributes %v", x.Projection, x.Include)
		}
		if x.Key, err = schema(g.KeySchema); err != nil {
			return def, err
		}
		def.Indexes = append(def.Indexes, x)
	}
	if len(used) != len(def.Attributes) {
		return def, invalidParam("Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	switch in.BillingMode {
	case "PAY_PER_REQUEST":
		if in.ProvisionedThroughput != nil {
			return def, invalidParam("Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
		}
	case "", "PROVISIONED":
		if p := in.ProvisionedThroughput; p == nil || p.ReadCapacityUnits < 1 || p.WriteCapacityUnits < 1 {
			return def, invalidParam("ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED")
		}
		def.Billed, def.Read, def.Write = "PROVISIONED", in.ProvisionedThroughput.ReadCapacityUnits, in.ProvisionedThroughput.WriteCapacityUnits
	default:
		return def, invalid("Member must satisfy enum value set: [PROVISIONED, PAY_PER_REQUEST]: billingMode %q", in.BillingMode)
	}
	if sp := in.StreamSpecification; sp != nil {
		views := []string{"KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"}
		if sp.StreamEnabled != slices.Contains(views, sp.StreamViewType) {
			return def, invalidParam("StreamEnabled %v does not go with StreamViewType %q", sp.StreamEnabled, sp.StreamViewType)
		}
		def.View = sp.StreamViewType
	}
	return def, nil
}

// describe is the TableDescription.
func (t *table) describe(status string) map[string]any {
	d := t.def
	attributes := []attributeDefinition{}
	for _, name := range sortedKeys(d.Attributes) {
		attributes = append(attributes, attributeDefinition{name, d.Attributes[name]})
	}
	capacity := map[string]any{"ReadCapacityUnits": d.Read, "WriteCapacityUnits": d.Write, "NumberOfDecreasesToday": 0}
	out := map[string]any{
		"TableName": d.Name, "TableStatus": status, "TableArn": arnPrefix + d.Name, "TableId": d.ID,
		"CreationDateTime":     seconds(d.Created),
		"AttributeDefinitions": attributes, "KeySchema": d.Key.elements(),
		"ItemCount": t.count, "TableSizeBytes": t.bytes,
		"ProvisionedThroughput": capacity,
	}
	if d.Billed == "PAY_PER_REQUEST" {
		out["BillingModeSummary"] = map[string]any{"BillingMode": d.Billed}
	}
	if d.View != "" {
		out["StreamSpecification"] = streamSpecification{true, d.View}
		out["LatestStreamLabel"] = d.Label
		out["LatestStreamArn"] = d.streamArn()
	}
	var indexes []map[string]any
	for _, x := range d.Indexes {
		indexes = append(indexes, map[string]any{
			"IndexName": x.Name, "IndexStatus": "ACTIVE", "IndexArn": arnPrefix + d.Name + "/index/" + x.Name,
			"KeySchema": x.Key.elements(), "Projection": projection{x.Projection, x.Include},
			"ProvisionedThroughput": capacity,
		})
	}
	if indexes != nil {
		out["GlobalSecondaryIndexes"] = indexes
	}
	return out
}

func (k keySchema) elements() []schemaElement {
	out := []schemaElement{{k.Hash, "HASH"}}
	if k.Range != "" {
		out = append(out, schemaElement{k.Range, "RANGE"})
	}
	return out
}

func (d definition) streamArn() string { return arnPrefix + d.Name + "/stream/" + d.Label }

func seconds(ms int64) float64 { return float64(ms) / float64(time.Second/time.Millisecond) }

// nameInput is that of the calls that only name a table. An ARN of a table is as good as its name.
type nameInput struct{ TableName string }

func (in *nameInput) tableNames() []string { return []string{in.TableName} }

func (s *Server) describeTable(_ context.Context, _ *request, in *nameInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(in.TableName)
	if err != nil {
		return nil, err
	}
	return map[string]any{"Table": t.describe("ACTIVE")}, nil
}

func (s *Server) deleteTable(_ context.Context, _ *request, in *nameInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.table(in.TableName)
	if bad != nil {
		return nil, bad
	}
	if err := s.commit(logRecord{Kind: recordDelete, Table: in.TableName}); err != nil {
		return nil, err
	}
	return map[string]any{"TableDescription": t.describe("DELETING")}, nil
}

type listTablesInput struct {
	Limit                   *int
	ExclusiveStartTableName string
}

func (in *listTablesInput) tableNames() []string { return nil }

func (s *Server) listTables(_ context.Context, _ *request, in *listTablesInput) (any, error) {
	limit := 100
	if in.Limit != nil {
		limit = *in.Limit
	}
	if limit < 1 || limit > 100 {
		return nil, invalid("Value '%d' at 'limit' failed to satisfy constraint: Member must have value between 1 and 100", limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.DeleteFunc(sortedKeys(s.tables), func(n string) bool {
		return strings.Compare(n, in.ExclusiveStartTableName) <= 0
	})
	if len(names) <= limit {
		return map[string]any{"TableNames": names}, nil
	}
	return map[string]any{"TableNames": names[:limit], "LastEvaluatedTableName": names[limit-1]}, nil
}
