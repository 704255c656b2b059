"""Graph networks of PyTorch Geometric, in the rows of `research_models`."""

from __future__ import annotations

GRAPHS = """
GCNConv({w}, 16, add_self_loops=False) | nodes, edges, weights
ChebConv({w}, 16, K=3) | nodes, edges
SAGEConv({w}, 16) | nodes, edges
SAGEConv({w}, 16, aggr='max', project=True) | nodes, edges
GraphConv({w}, 16) | nodes, edges, weights
GATConv({w}, 8, heads=2, add_self_loops=False) | nodes, edges
GATv2Conv({w}, 8, heads=2, edge_dim=3, add_self_loops=False) | nodes, edges, attributes
TransformerConv({w}, 8, heads=2) | nodes, edges
AGNNConv(add_self_loops=False) | nodes, edges
TAGConv({w}, 16, K=2) | nodes, edges
GINConv(torch.nn.Linear({w}, 16)) | nodes, edges
GINEConv(torch.nn.Linear({w}, 16), edge_dim=3) | nodes, edges, attributes
ARMAConv({w}, 16, num_stacks=2, num_layers=2) | nodes, edges
SGConv({w}, 16, K=2, add_self_loops=False) | nodes, edges
SSGConv({w}, 16, alpha=0.1, K=2, add_self_loops=False) | nodes, edges
APPNP(K=3, alpha=0.1, add_self_loops=False) | nodes, edges
MFConv({w}, 16, max_degree=4) | nodes, edges
RGCNConv({w}, 16, 3) | nodes, edges, kinds
FastRGCNConv({w}, 16, 3, num_bases=2) | nodes, edges, kinds
CGConv({w}, dim=3) | nodes, edges, attributes
EdgeConv(torch.nn.Sequential(torch.nn.Linear(2 * {w}, 16), torch.nn.ReLU())) | nodes, edges
NNConv({w}, 4, torch.nn.Linear(3, 4 * {w})) | nodes, edges, attributes
PNAConv({w}, 16, ['mean', 'max', 'std'], ['identity', 'amplification'], deg=torch.tensor([1, 3, 5, 4])) | nodes, edges
ClusterGCNConv({w}, 16) | nodes, edges
GENConv({w}, 16, aggr='softmax', learn_t=True) | nodes, edges
GCN2Conv({w}, alpha=0.1, theta=0.5, layer=1, add_self_loops=False) | nodes, nodes, edges
LEConv({w}, 16) | nodes, edges
FiLMConv({w}, 16) | nodes, edges
SuperGATConv({w}, 8, heads=2, add_self_loops=False) | nodes, edges
FAConv({w}, add_self_loops=False) | nodes, nodes, edges
EGConv({w}, 16, num_heads=4, num_bases=2, aggregators=['sum', 'mean', 'max'], add_self_loops=False) | nodes, edges
ResGatedGraphConv({w}, 16) | nodes, edges
GeneralConv({w}, 16, attention=True, heads=2) | nodes, edges
LGConv() | nodes, edges
HypergraphConv({w}, 16) | nodes, edges
PDNConv({w}, 16, 3, 8, add_self_loops=False) | nodes, edges, attributes
MixHopConv({w}, 8) | nodes, edges
FeaStConv({w}, 16, heads=3) | nodes, edges
GatedGraphConv({w}, num_layers=2) | nodes, edges
GMMConv({w}, 16, dim=3, kernel_size=4) | nodes, edges, attributes
PointNetConv(torch.nn.Linear({w} + 3, 16)) | nodes, places, edges
PointTransformerConv({w}, 16) | nodes, places, edges
AntiSymmetricConv({w}) | nodes, edges
DirGNNConv(torch_geometric.nn.GCNConv({w}, 16)) | nodes, edges
GCN({w}, 16, num_layers=2, add_self_loops=False) | nodes, edges
GAT({w}, 16, num_layers=2, heads=2, add_self_loops=False) | nodes, edges
GIN({w}, 16, num_layers=2) | nodes, edges
GraphSAGE({w}, 16, num_layers=2, jk='cat') | nodes, edges
DenseGCNConv({w}, 16) | tokens, dense
DenseSAGEConv({w}, 16) | tokens, dense
DenseGATConv({w}, 8, heads=2) | tokens, dense
DenseGINConv(torch.nn.Linear({w}, 16)) | tokens, dense
MeanAggregation() | nodes, groups
MaxAggregation() | nodes, groups
StdAggregation() | nodes, groups
SoftmaxAggregation(learn=True) | nodes, groups
PowerMeanAggregation(learn=True) | nodes.abs() + 0.1, groups
VarAggregation() | nodes, groups
SetTransformerAggregation({w}, heads=2) | nodes, groups
GraphNorm({w}) | nodes, groups
PairNorm() | nodes
MessageNorm(learn_scale=True) | nodes, nodes
DiffGroupNorm({w}, groups=3) | nodes
MLP([{w}, 32, 10], norm='layer_norm') | nodes
PerformerAttention({w}, heads=2, head_channels=8) | tokens
SGFormerAttention({w}, heads=2, head_channels=8) | tokens
InnerProductDecoder() | nodes, edges

PositionalEncoding({w}) | torch.rand({n}) * 10
TemporalEncoding({w}) | torch.rand({n}) * 10
"""
